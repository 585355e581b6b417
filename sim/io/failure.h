// What went wrong, in one line for people.
#pragma once

#include <filesystem>
#include <string>

namespace amp {

/// What the exception that is being handled says to a user, in a line that names the file: its own, or `subject`.
std::string failure_text(const std::filesystem::path& subject = {});

} // namespace amp
