#' @importFrom generics compile fit
#' @rawNamespace export(compile, fit)
NULL

#' The pipe
#'
#' `object %>% f(x)` is `f(object, x)`, see [magrittr::%>%]. So is `object |> f(x)`, which R has itself.
#'
#' @name %>%
#' @rdname pipe
#' @usage lhs \%>\% rhs
#' @param lhs,rhs A value, and a call of a function whose first argument it becomes.
#' @return The value of the call.
#' @importFrom magrittr %>%
#' @export %>%
NULL
