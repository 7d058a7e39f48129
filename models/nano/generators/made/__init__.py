"""What no author wrote: texts, forms and layouts put together by rule, which the authors in training share."""
