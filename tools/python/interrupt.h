// Long work without Python's lock, which Ctrl-C ends.
#pragma once

#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/base/progress.h>

#include <optional>

namespace amp::python {

/// Thrown through the work. It is no std::exception, so that nobody takes it for a file that cannot be read.
struct Interruption {};

/// A watch of work that was begun by this thread: it asks Python, ten times a second, whether a signal has come, and
/// ends the work where its handler raises an exception, as that of Ctrl-C does.
Watch watch_signals();

/// work(watch), which holds no object of Python's.
template <class Work>
auto interruptible(const Work& work) {
    std::optional<decltype(work(Watch()))> result;
    try {
        const nb::gil_scoped_release release;
        result.emplace(work(watch_signals()));
    } catch (const Interruption&) {
    } catch (...) { // where another failure overtook the interruption
        if (PyErr_Occurred() == nullptr) throw;
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return *std::move(result);
}

} // namespace amp::python
