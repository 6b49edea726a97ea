document$.subscribe(() => {
  renderMathInElement(document.body, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  })
  for (const code of document.querySelectorAll(".md-typeset :not(pre) > code")) {
    code.classList.toggle("short", code.textContent.length < 24)
  }
})
