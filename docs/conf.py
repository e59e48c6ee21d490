"""How Sphinx builds these pages. No page fetches anything: `make docs` works without a network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import deliralike  # noqa: E402

project = "deliralike"
author = "The deliralike authors"
project_copyright = "the deliralike authors"
version = release = deliralike.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "vocabulary",
    "command_line",
    "gallery",
]
exclude_patterns = ["_build", "_ext", "_generated"]
# single backticks in docstrings: a link where there is a target, code where there is none
default_role = "py:obj"

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types stand in the code; the text says what they do not
autodoc_class_signature = "mixed"
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [
    ("Shapes", "notes_style"),
    ("Source", "notes_style"),
    ("Example line", "notes_style"),
]
python_display_all_type_parameters = False

html_theme = "furo"
html_title = f"deliralike {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
