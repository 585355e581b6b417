// An error in one line for users.
#pragma once

#include <filesystem>
#include <string>

namespace amp {

/// The message, in one line, of the exception that is being handled. It names a file: the exception's own, or
/// `subject`.
std::string failure_text(const std::filesystem::path& subject = {});

} // namespace amp
