// Behaviour that all tools share, checked for each tool in the list: streams that cannot be written, exit codes, wrong
// usage. A new tool needs a row in Inputs::prints and two in test_surface_options.cpp.
#include "surface.h"

#include <ampscope/sim/io/failure.h>
#include <ampscope/tools/output.h>

#include <nlohmann/json.hpp>

#include <csignal>
#include <utility>

#include <unistd.h>

using namespace amp;
using namespace amp::test;

namespace {

/// Runs a command with redirected streams; BROKEN stands for a pipe that nobody reads.
int status_of(std::string command) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    ::close(pipe[0]);
    for (std::size_t at = 0; (at = command.find("BROKEN")) != std::string::npos;)
        command.replace(at, 6, "&" + std::to_string(pipe[1]));
    const int status = std::system(command.c_str());
    ::close(pipe[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const std::string without_sigpipe = "trap '' PIPE; ";

} // namespace

TEST_CASE("a report that standard output does not take is a failure with a line that says so") {
    const Inputs inputs;
    for (const std::string& tool : tools())
        for (const std::string& command : inputs.prints(tool)) {
            CAPTURE(command);
            CHECK(status_of(command + " >/dev/null") == 0);
            for (const std::string to : {">/dev/full", ">&-", ">BROKEN"}) {
                CAPTURE(to);
                CHECK(status_of(without_sigpipe + command + " " + to + " 2>" + inputs.at("err")) == 1);
                const std::string says = read_file(inputs.at("err"));
                CHECK(says.starts_with(tool + ": standard output: cannot be written: "));
                CHECK(lines_of(says).size() == 1);
            }
        }
}

TEST_CASE("a reader that has seen enough ends a tool as it ends others") {
    const Inputs inputs;
    for (const std::string& tool : tools()) {
        CHECK(status_of(path_of(tool) + " --help >BROKEN 2>" + inputs.at("err")) == 128 + SIGPIPE);
        CHECK(read_file(inputs.at("err")).empty());
    }
}

TEST_CASE("standard error that cannot be written changes no exit code, and no file takes its place") {
    const Inputs inputs;
    for (const std::string& tool : tools())
        for (const auto& [arguments, code] : {std::pair<std::string, int>{"--bogus", 2}, {"--version", 0}})
            for (const std::string to : {"2>/dev/full", "2>&-", "2>BROKEN", "<&- >&- 2>&-"}) {
                CAPTURE(tool);
                CAPTURE(to);
                CHECK(status_of(path_of(tool) + " --bogus >/dev/null " + to) == 2); // with SIGPIPE's default action
                const bool prints = code == 0 && to.find(">&- 2") != std::string::npos;
                CHECK(status_of(without_sigpipe + path_of(tool) + " " + arguments + " >/dev/null " + to) ==
                      (prints ? 1 : code));
            }
    // If one input is good and one is missing, a line on standard error precedes the report.
    const std::string report = inputs.at("report.json");
    for (const auto& [tool, more] : {std::pair<std::string, std::string>{"amp-histogram", "g_0.npy"},
                                     {"amp-loss-scale", "log.csv"},
                                     {"amp-adam", "g_0.npy"},
                                     {"amp-report", "g_0.npy"}})
        for (const std::string to : {"2>/dev/full", "2>BROKEN", "2>&- >&-"}) {
            CAPTURE(to);
            for (const std::string& trap : {without_sigpipe, std::string()}) {
                fs::remove(report);
                CHECK(status_of(trap + path_of(tool) + " " + inputs.at(more) + " " + inputs.at("missing.npy") +
                                " --json " + report + " >/dev/null " + to) == 1);
                CHECK(nlohmann::json::parse(read_file(report)).is_object());
            }
        }
}

TEST_CASE("whatever is thrown becomes a line in words of ours, with the file once") {
    const auto says = [](const auto& thrown, const std::string& text) {
        try {
            thrown();
        } catch (...) {
            CHECK(failure_text("a.npz") == text);
        }
    };
    const std::string memory = "a.npz: out of memory: what is to be read needs more than ";
    says([] { throw std::bad_alloc(); }, memory + "this machine, or a limit on it, grants");
    says([] { std::string().reserve(~std::size_t{0}); }, memory + "any machine grants");
    says([] { static_cast<void>(fs::file_size("/no/such")); }, "/no/such: No such file or directory");
    says([] { throw FileError("b.npz", "is none"); }, "b.npz: is none");
    says([] { throw std::runtime_error("cannot be read"); }, "a.npz: cannot be read");
    for (const char* named : {"a.npz: cannot be read", "a.npz/x.npy: cannot be read"})
        says([&] { throw std::runtime_error(named); }, named);
    says([] { throw std::runtime_error("a.npzs are read"); }, "a.npz: a.npzs are read");
    says([] { nlohmann::json::parse("[1").at(0); }, "a.npz: JSON: parse error at line 1, column 3: syntax error while "
                                                    "parsing array - unexpected end of input; expected ']'");
    says([] { throw std::exception(); }, "a.npz: an error in this program (std::exception); please report it");
    says([] { throw 1; }, "a.npz: an error in this program (unknown); please report it");
    const std::string folder = fs::temp_directory_path();
    says(
        [&] {
            std::ifstream in(folder);
            in.exceptions(std::ios::badbit);
            std::string word;
            in >> word; // "basic_filebuf::underflow error reading the file: Is a directory"
        },
        "a.npz: Is a directory");
}

TEST_CASE("long arrays stand where they were put, whatever the names beside them say") {
    using Json = nlohmann::ordered_json;
    const std::string mark = "\"\x01"; // once used as a mark; a file may have such a name
    const auto element = [&](std::size_t i) { return Json{{"i", i}, {mark + "1", {mark + "0", Json::array()}}}; };
    LongArrays arrays;
    const auto document = [&](bool plain) {
        const auto array = [&](std::size_t size) {
            Json all = Json::array();
            for (std::size_t i = 0; i < size; ++i) all.push_back(element(i));
            return plain ? all : arrays.add(size, element);
        };
        return Json{{"warnings",
                     {mark + "0", mark + "7", mark + "x",
                      "\x01"
                      "0"}},
                    {mark + "0", array(3)},
                    {"inputs", {{{"none", array(0)}, {"few", array(1)}, {"name", mark + "2"}}, Json::object()}},
                    {"last", 1}};
    };
    std::string text;
    arrays.write(document(false), [&](std::string_view piece) { text += piece; });
    CHECK(text == json_text(document(true)));
}

TEST_CASE("one table of exit codes, in the manual and in every --help") {
    const std::string manual = read_file(std::string(AMPSCOPE_SOURCE) + "/tools/README.md");
    const std::size_t begin = manual.find("Exit codes:\n");
    REQUIRE(begin != std::string::npos);
    const std::string table = manual.substr(begin, manual.find("```", begin) - begin);
    CHECK(lines_of(table).size() == 6);
    for (const std::string& tool : tools()) {
        CAPTURE(tool);
        const std::string help = run_command(path_of(tool) + " --help").out;
        CHECK(help.ends_with("\n" + table));
        CHECK(help.find("Exit code", 0) == help.size() - table.size());
        for (const std::string& line : lines_of(help)) CHECK_MESSAGE(line.size() <= 80, line);
    }
}

TEST_CASE("a damaged file among good ones is a failure, after the rest is reported") {
    const Inputs inputs;
    const std::string good = inputs.at("g_0.npy"), bad = inputs.at("bad.npy");
    write_file(bad, "no array");
    for (const auto& [tool, input] : {std::pair<std::string, std::string>{"amp-histogram", good},
                                      {"amp-loss-scale", inputs.at("log.csv")},
                                      {"amp-adam", good},
                                      {"amp-report", good}})
        for (const std::string& paths : {input + " " + bad, bad + " " + input}) {
            const Outcome o = Tool{path_of(tool)}(paths);
            CAPTURE(o.err);
            CHECK(o.code == 1);
            CHECK(o.err.starts_with(tool + ": " + bad + ": "));
            CHECK(lines_of(o.err).size() == 1);
            CHECK(lines_of(o.out).size() > 5);
        }
}

TEST_CASE("wrong usage: the unknown is named before what is missing, in one line") {
    for (const std::string& tool : tools()) {
        const Tool run{path_of(tool)};
        for (const std::string arguments : {"--bogus", "--bogus=3", "--bogus /missing"})
            run.check_error(arguments, 2, {tool + ": unknown option '--bogus'; see --help\n"});
        run.check_error("'-\x1b[31m\n'", 2, {"unknown option '-\xef\xbf\xbd[31m\xef\xbf\xbd'"});
    }
    Tool{path_of("amp-format")}.check_error("-inf", 2, {"unknown option '-inf' (options first, then --, then"});
    const Tool crosscheck{path_of("amp-crosscheck")};
    crosscheck.check_error("bogus", 2, {"unexpected argument 'bogus'; commands are devices, run, vectors"});
    crosscheck.check_error("run --bogus", 2, {"unknown option '--bogus'"});
    const Tool histogram{path_of("amp-histogram")};
    histogram.check_error("--worst 1 --worst 2", 2, {"--worst is given more than once"});
    histogram.check_error("--json", 2, {"--json needs a value"});
    histogram.check_error("--error=1", 2, {"--error takes no value"});
}
