# Fails where a line of R is not in tidyverse style.
lints <- c(
  lintr::lint_package(),
  lintr::lint_dir("bench", pattern = "\\.R$"),
  lintr::lint_dir("examples", pattern = "\\.(R|Rmd)$")
)
for (lint in lints) print(lint)
quit(status = as.integer(length(lints) > 0))
