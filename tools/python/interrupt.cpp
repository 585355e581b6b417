#include <ampscope/tools/python/interrupt.h>

#include <chrono>
#include <thread>

namespace amp::python {

namespace {

using Clock = std::chrono::steady_clock;

class SignalWatch {
  public:
    void look() {
        if (interrupted_) throw Interruption();
        if (std::this_thread::get_id() != caller_ || Clock::now() - last_ < std::chrono::milliseconds(100)) return;
        last_ = Clock::now();
        const nb::gil_scoped_acquire acquire;
        interrupted_ = PyErr_CheckSignals() != 0;
        if (interrupted_) throw Interruption();
    }

  private:
    std::thread::id caller_ = std::this_thread::get_id();
    Clock::time_point last_ = Clock::now();
    bool interrupted_ = false;
};

} // namespace

Watch watch_signals() {
    return
        [watch = std::make_shared<SignalWatch>()](std::uint64_t) { return [watch](std::uint64_t) { watch->look(); }; };
}

} // namespace amp::python
