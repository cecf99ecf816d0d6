test_that("a function of Keras 2 says where it is", {
  expect_snapshot({
    writeLines(error_text(layer_dense(units = 10)))
    writeLines(error_text(k_mean(1)))
    writeLines(error_text(predict_classes(1, 2)))
    writeLines(error_text(save_model(1, "x")))
  })
})

test_that("each of them is exported and names something that is there", {
  expect_true(all(names(elsewhere) %in% getNamespaceExports("multigpu")))
  in_keras <- grep("^keras[$]", elsewhere, value = TRUE)
  expect_gt(length(in_keras), 40)
  for (path in sub("()", "", in_keras, fixed = TRUE)) {
    found <- eval(parse(text = path)[[1]])
    expect_true(is.function(found), info = path)
  }
})
