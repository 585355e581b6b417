// A file of options, as --config reads it: lines "name = value" of TOML 1.0, and comments. A value is a text of one
// line in quotes ("..." with TOML's escapes and \e, '...' as it stands), a number (1_000, 0x3e8 ...), true or false, or
// a list of these, which may go on over several lines. Sections, tables, texts of several lines and keys with dots are
// refused. Beyond TOML, a text without spaces may do without quotes, as on the command line.
#pragma once

#include <CLI/CLI.hpp>

#include <istream>
#include <map>
#include <string>
#include <vector>

namespace amp {

/// CLI11's own reader names no line, takes what it does not understand for something else, waits for pipes and reads
/// devices for ever.
class OptionsFile : public CLI::ConfigBase {
  public:
    explicit OptionsFile(const CLI::App& app) : app_(app) {}

    /// Reads the file. Throws FileError, and UsageError if no name is given.
    void read(const std::string& path);

    /// What the file gives, for CLI11 to check. Throws UsageError "FILE:LINE: what is wrong, and what is expected".
    std::vector<CLI::ConfigItem> from_config(std::istream& same_file) const override;

    /// "FILE:LINE: " of the line that gives the option of that name, without its dashes; "" if none does.
    [[nodiscard]] std::string place_of(const std::string& name) const;

  private:
    const CLI::App& app_;
    std::string path_, text_;
    mutable std::map<std::string, int> lines_; // by name; filled in by from_config(), which CLI11 wants to be const
};

} // namespace amp
