"""How Sphinx builds the site: see scripts/docs."""

from porter.base.package import __version__

project, author, version, release = "porter", "the authors of porter", __version__, __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
# Of a block that shows commands with what they print, the commands are copied, without the prompt.
copybutton_prompt_text = "$ "
html_theme, html_title = "furo", f"porter {__version__}"
html_static_path, html_css_files = ["static"], ["site.css"]
html_js_files = [("sort.js", {"defer": "defer"})]
html_show_copyright = html_show_sourcelink = html_copy_source = False
highlight_language = "text"  # what a block without a language shows is what porter prints
smartquotes_action = "qe"  # two hyphens begin a flag, and are no dash
myst_heading_anchors = 3  # links to headings, as code hosts follow them
autodoc_member_order = "bysource"
