#' @importFrom generics compile fit
#' @rawNamespace export(compile, fit)
NULL

#' The pipe
#'
#' `object %>% f(x)` is `f(object, x)`; see [magrittr::%>%].
#'
#' @name pipe
#' @aliases %>%
#' @usage lhs \%>\% rhs
#' @param lhs,rhs A value, and a call of the function that takes it first.
#' @return The value of the call.
#' @importFrom magrittr %>%
#' @export %>%
NULL
