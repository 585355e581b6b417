#include <ampscope/sim/io/failure.h>

#include <ampscope/sim/io/json_reader.h>

#include <nlohmann/json.hpp>

#include <new>
#include <stdexcept>
#include <system_error>

namespace amp {

namespace {

namespace fs = std::filesystem;

/// Whether a line already begins with the path, or with one below it.
bool begins_with_path(const std::string& line, const fs::path& path) {
    const std::string text = path.string();
    return !text.empty() && line.starts_with(text) &&
           (text.ends_with('/') || line.find_first_of(":/", text.size()) == text.size());
}

} // namespace

std::string failure_text(const fs::path& subject) {
    const std::string at = subject.empty() ? "" : subject.string() + ": ";
    const auto named = [&](const std::string& what) { return begins_with_path(what, subject) ? what : at + what; };
    const auto unexpected = [&](const std::string& what) {
        return at + "an error in this program (" + what + "); please report it";
    };
    try {
        throw;
    } catch (const FileError& error) {
        return error.what();
    } catch (const nlohmann::json::exception& error) {
        return at + "JSON: " + words_of(error);
    } catch (const std::bad_alloc&) {
        return at + "out of memory: what is to be read needs more than this machine, or a limit on it, grants";
    } catch (const std::length_error&) {
        return at + "out of memory: what is to be read needs more than any machine grants";
    } catch (const fs::filesystem_error& error) {
        return (error.path1().empty() ? at : error.path1().string() + ": ") + error.code().message();
    } catch (const std::system_error& error) { // includes the exceptions of streams
        return at + error.code().message();
    } catch (const std::invalid_argument& error) {
        return named(error.what());
    } catch (const std::logic_error& error) {
        return unexpected(error.what());
    } catch (const std::runtime_error& error) {
        return named(error.what());
    } catch (const std::exception& error) {
        return unexpected(error.what());
    } catch (...) {
        return unexpected("unknown");
    }
}

} // namespace amp
