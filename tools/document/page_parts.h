// What every page holds besides its document.
#pragma once

#include <string_view>

namespace amp {

/// Style sheet of screens, light and dark, of phones and of paper. That of the figures is svg_definitions().
extern const std::string_view page_style;

/// JavaScript. Without it a page has everything, too: it sorts tables, shows the values of charts under the pointer,
/// hides lines by a click on the legend, and switches to a logarithmic axis. Text of the page enters as text only.
extern const std::string_view page_script;

} // namespace amp
