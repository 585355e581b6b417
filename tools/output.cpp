#include <ampscope/tools/output.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/failure.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/io/write.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>

namespace amp {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_write(const fs::path& path) {
    throw FileError(path, "cannot be written: " + std::generic_category().message(errno));
}

bool is_pipe_or_device(const fs::path& path) {
    std::error_code none;
    return fs::is_other(path, none);
}

constexpr std::size_t longest_usage = 2000; // of what may repeat words of the command line or of --config

constexpr const char* standard_output = "standard output";

/// A file that is opened later must not take the number of a standard stream that is closed, and with it what is
/// printed. Opened the wrong way round, that stream refuses reading or writing as before.
void hold_closed_streams() {
    for (const int stream : {0, 1, 2}) // open() takes the lowest number that is free
        if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

void tell_of_thread_shortage(const Complain& complain) {
    if (const auto shortage = thread_shortage())
        complain("warning: " + std::to_string(shortage->got) + " of " + std::to_string(shortage->wanted) +
                 " threads could work: " + shortage->reason + "; the result is the same");
}

/// Some file systems tell of a full disk when a file is closed.
void close_output() {
    if (std::fclose(stdout) != 0) fail_to_write(standard_output);
}

} // namespace

void print_text(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        fail_to_write(standard_output);
}

// A closed pipe there would end the program by SIGPIPE, which is held back and taken from what is pending.
void print_error(std::string_view text) noexcept {
    sigset_t broken_pipe, before, pending;
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
    sigpending(&pending);
    std::fwrite(text.data(), 1, text.size(), stderr);
    constexpr timespec at_once{};
    if (sigismember(&pending, SIGPIPE) == 0) sigtimedwait(&broken_pipe, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::string json_text(const nlohmann::ordered_json& document, int indent) {
    return printable_json(document.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace)) + "\n";
}

namespace {

using Json = nlohmann::ordered_json;

/// A document as it stands so deep in another: its first line has no margin.
std::string nested_text(const Json& document, const std::string& margin) {
    const std::string plain = json_text(document);
    std::string text;
    for (std::size_t line = 0; line < plain.size();) {
        const std::size_t end = plain.find('\n', line);
        text.append(line == 0 ? "" : "\n" + margin).append(plain, line, end - line);
        line = end + 1;
    }
    return text;
}

bool holds_long_array(const Json& json) {
    return json.is_binary() || (json.is_structured() && std::ranges::any_of(json, holds_long_array));
}

} // namespace

Json LongArrays::add(std::size_t size, std::function<Json(std::size_t)> element) {
    arrays_.push_back({size, std::move(element)});
    return Json::binary({}, arrays_.size() - 1); // a kind of value that no document of ours has otherwise
}

void LongArrays::write(const Json& document, const TextSink& sink) const {
    write(document, "", sink);
    sink("\n");
}

void LongArrays::write(const Json& json, const std::string& margin, const TextSink& sink) const {
    if (!holds_long_array(json)) return sink(nested_text(json, margin));
    const std::string inner = margin + ' ';
    const Array* const array = json.is_binary() ? &arrays_.at(json.get_binary().subtype()) : nullptr;
    const std::size_t size = array != nullptr ? array->size : json.size();
    if (size == 0) return sink("[]");
    sink(json.is_object() ? "{" : "[");
    auto at = json.begin();
    for (std::size_t i = 0; i < size; ++i) {
        sink((i == 0 ? "\n" : ",\n") + inner);
        if (array != nullptr) {
            sink(nested_text(array->element(i), inner));
            continue;
        }
        if (json.is_object()) sink(nested_text(at.key(), inner) + ": ");
        write(*at, inner, sink);
        ++at;
    }
    sink("\n" + margin + (json.is_object() ? "}" : "]"));
}

void probe_report(const fs::path& path) {
    if (path != "-" && !is_pipe_or_device(path)) const AtomicFile probe(path);
}

bool takes_standard_output(std::initializer_list<std::string_view> paths) {
    return std::ranges::find(paths, std::string_view("-")) != paths.end();
}

void write_report(const fs::path& path, std::string_view text) {
    write_report(path, [&](const TextSink& sink) { sink(text); });
}

void write_report(const fs::path& path, const std::function<void(const TextSink&)>& body) {
    if (path == "-") return body(print_text);
    if (!is_pipe_or_device(path)) {
        AtomicFile file(path);
        body([&](std::string_view piece) { file.append(std::as_bytes(std::span(piece))); });
        return file.commit();
    }
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"), std::fclose);
    if (file == nullptr) fail_to_write(path);
    body([&](std::string_view piece) {
        if (std::fwrite(piece.data(), 1, piece.size(), file.get()) != piece.size()) fail_to_write(path);
    });
    if (std::fflush(file.get()) != 0) fail_to_write(path);
}

void Complain::operator()(const std::string& line) const {
    print_error(std::string(tool) + ": " + printable(line) + "\n");
}

std::vector<std::string> for_each_input(const std::vector<fs::path>& paths, const Tell& tell,
                                        const std::function<void(const fs::path&)>& body) {
    std::vector<std::string> errors;
    for (const fs::path& path : paths) {
        try {
            body(path);
        } catch (const RecordingError& error) {
            std::ranges::for_each(error.lines(), tell);
            errors.insert(errors.end(), error.lines().begin(), error.lines().end());
        } catch (const std::exception&) {
            errors.push_back(failure_text(path));
            tell(errors.back());
        }
    }
    return errors;
}

namespace {

volatile std::sig_atomic_t stop_signal = 0;
timespec stop_time{}; // of stop_signal, on the monotonic clock

struct Stopped {
    int signal;
};

/// A second signal ends the tool at once, unless it comes with the first: timeout(1) sends one to the tool and one to
/// its process group, faster than anybody presses Ctrl-C twice.
void on_signal(int signal) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const double since = static_cast<double>(now.tv_sec - stop_time.tv_sec) +
                         1e-9 * static_cast<double>(now.tv_nsec - stop_time.tv_nsec);
    if (stop_signal == 0) {
        stop_time = now;
        stop_signal = signal;
    } else if (since > 0.3) {
        std::_Exit(128 + signal);
    }
}

} // namespace

Watch until_stopped(const Watch& watch) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN); // as nohup wants it
    return [watch](std::uint64_t total) {
        return [progress = begin(watch, total)](std::uint64_t done) {
            if (stop_signal != 0) throw Stopped{stop_signal};
            if (progress) progress(done);
        };
    };
}

int exit_code(const Complain& complain, const std::function<int()>& run) {
    // Whatever a library in the process has done to it, arithmetic and the reading of numbers are as they should be.
    const FloatEnvironment environment;
    hold_closed_streams();
    std::signal(SIGXFSZ, SIG_IGN); // a file that may grow no further is an error of writing it, as a full disk is
    int code = 1;
    try {
        const int result = run();
        close_output();
        code = result;
    } catch (const Stopped& stopped) {
        std::signal(stopped.signal, SIG_DFL);
        std::raise(stopped.signal);
    } catch (const UsageError& error) {
        complain(clipped(printable(error.what()), longest_usage) + "; see --help");
        code = 2;
    } catch (...) {
        complain(failure_text());
    }
    tell_of_thread_shortage(complain);
    return code;
}

} // namespace amp
