// The Python module: bindings without logic of their own. What users call is in ampscope/, which turns arrays of every
// kind into those that are taken here.
#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/recording.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

NB_MODULE(_ampscope, m) {
    using namespace amp::python;
    m.attr("__version__") = AMPSCOPE_VERSION;
    nb::set_leak_warnings(false); // graphs of torch that a script still has at its end outlive the interpreter
    nb::register_exception_translator([](const std::exception_ptr& p, void*) {
        try {
            std::rethrow_exception(p);
        } catch (const amp::FileError& error) {
            PyErr_SetString(PyExc_OSError, amp::printable(error.what()).c_str());
        } catch (const amp::RecordingError& error) { // a line for each file
            std::vector<std::string> lines;
            for (const std::string& line : error.lines()) lines.push_back(amp::printable(line));
            PyErr_SetString(PyExc_OSError, fmt::format("{}", fmt::join(lines, "\n")).c_str());
        }
    });
    bind_formats(m);
    bind_analysis(m);
    bind_attention(m);
    bind_adam(m);
    bind_histogram(m); // runs have its counts
    bind_recorded_run(m);
    bind_comparison(m);
    bind_diff(m);
    bind_eager(m);
    bind_loss_scale(m);
    bind_mismatch(m);
    bind_optimizer(m);
    bind_p3109_blocks(m);
    bind_products(m);
    bind_collective(m);
    bind_recording(m);
    bind_step_comparison(m);
    bind_teaching(m);
    bind_training(m);
}
