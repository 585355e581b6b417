#include <ampscope/sim/base/parallel.h>

#include <ampscope/sim/base/cores.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>

namespace amp {

namespace {

/// A call of for_each_chunk: its chunks are given in order to whichever thread asks next.
struct Job {
    std::uint64_t chunks;
    const std::function<void(std::uint64_t)>& run;
    std::atomic<std::uint64_t> next = 0;

    std::mutex failing{};                                             ///< guards the next two
    std::uint64_t failed = std::numeric_limits<std::uint64_t>::max(); ///< the first chunk that threw
    std::exception_ptr error{};

    // Changed under the crew's mutex.
    int wanted = 0; ///< helpers
    std::atomic<int> working = 0;
    std::condition_variable left{};

    void take_chunks() {
        for (std::uint64_t i = next++; i < chunks; i = next++) {
            try {
                run(i);
            } catch (...) {
                next = chunks;
                const std::lock_guard lock(failing);
                if (i > failed) continue;
                failed = i;
                error = std::current_exception();
            }
        }
    }
};

/// Waits until done(), or for about as long as it takes to fall asleep and be woken: a step of training has hundreds of
/// calls, one soon after the other. Who else has work for this core goes first.
template <class Done>
void wait_briefly(const Done& done) {
    constexpr std::chrono::microseconds a_while{100};
    const auto end = std::chrono::steady_clock::now() + a_while;
    while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

/// Reserves address space for the work of one thread while threads are made: where it is limited (ulimit -v), their
/// stacks must not take all of it.
class Room {
  public:
    Room() : begin_(::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
        if (begin_ == MAP_FAILED) throw std::system_error(errno, std::generic_category());
    }
    ~Room() { ::munmap(begin_, size); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

  private:
    static constexpr std::size_t size = std::size_t{96}
                                        << 20; // malloc may reserve 64 MiB for a thread, work takes some
    void* begin_;
};

/// The threads of this process that help with jobs. They serve every call, whatever number of threads it asks for, and
/// end when they have had no work for a while. A caller works on its own job only, and waits only for helpers that are
/// at work. So a job ends however few helpers come, and calls may be nested.
///
/// oneTBB has such threads, too, but it ends the process where the system refuses to make one; it never makes more than
/// 256 unless its first call asked for more; and in nested calls the smallest limit holds for all.
class Crew {
  public:
    /// Works on the job with up to `helpers` helpers, until every chunk that was begun is finished.
    void work(Job& job, int helpers) {
        call(job, helpers);
        job.take_chunks();
        std::unique_lock lock(mutex_);
        std::erase(jobs_, &job); // helpers that have not come yet are no longer needed
        lock.unlock();
        wait_briefly([&] { return job.working == 0; });
        lock.lock();
        job.left.wait(lock, [&] { return job.working == 0; });
    }

    std::optional<ThreadShortage> shortage() {
        const std::lock_guard lock(mutex_);
        return shortage_;
    }

    int take_most_threads() {
        const std::lock_guard lock(mutex_);
        return std::exchange(most_, 1);
    }

  private:
    struct Helper {
        std::condition_variable wake;
        std::atomic<bool> called = false;
    };
    static constexpr std::chrono::seconds patience{2};

    /// Wakes helpers, those first that came to rest last, or makes new ones.
    void call(Job& job, int helpers) {
        std::unique_lock lock(mutex_);
        job.wanted = helpers;
        jobs_.push_back(&job);
        int coming = 0;
        for (; coming < helpers && !resting_.empty(); ++coming) {
            Helper* const helper = resting_.back();
            resting_.pop_back();
            helper->called = true;
            helper->wake.notify_one();
        }
        std::string reason = "the limit of one process";
        std::deque<Room> rooms;
        try {
            for (; coming < helpers && size_ < max_threads; ++coming) {
                resting_.reserve(static_cast<std::size_t>(size_) + 1);
                rooms.emplace_back();
                std::thread([this] { serve(); }).detach();
                ++size_;
            }
        } catch (const std::exception& error) { // the system has no thread, or no memory for it
            reason = error.what();
        }
        most_ = std::max(most_, coming + 1);
        const int missing = shortage_ ? shortage_->wanted - shortage_->got : 0;
        if (helpers - coming > missing) shortage_ = {helpers + 1, coming + 1, reason};
    }

    void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            while (!jobs_.empty()) {
                Job& job = *jobs_.front();
                if (--job.wanted == 0) std::erase(jobs_, &job);
                ++job.working;
                lock.unlock();
                job.take_chunks();
                lock.lock();
                if (--job.working == 0) job.left.notify_one(); // under the lock: the job ends with its call
            }
            Helper self;
            resting_.push_back(&self);
            lock.unlock();
            wait_briefly([&] { return self.called.load(); });
            lock.lock();
            if (self.wake.wait_for(lock, patience, [&] { return self.called.load(); })) continue;
            std::erase(resting_, &self);
            --size_;
            return;
        }
    }

    std::mutex mutex_;
    std::vector<Job*> jobs_;       ///< jobs with parts that nobody has begun
    std::vector<Helper*> resting_; ///< helpers without work; has room for all
    int size_ = 0, most_ = 1;
    std::optional<ThreadShortage> shortage_;
};

/// Never destroyed: helpers may outlive everything else. A forked child has none of its parent's threads and begins
/// anew.
Crew& crew() {
    static std::atomic<Crew*> current = [] {
        ::pthread_atfork(nullptr, nullptr, [] { current = new Crew; });
        return new Crew;
    }();
    return *current;
}

thread_local Team team = nullptr;

} // namespace

WithTeam::WithTeam(Team other) : before_(std::exchange(team, other)) {}

WithTeam::~WithTeam() { team = before_; }

int thread_count(int requested) {
    if (requested < 0 || requested > max_threads)
        throw std::invalid_argument("[threads] expected 0 (every core) to " + std::to_string(max_threads) + ", got " +
                                    std::to_string(requested));
    static const int cores = std::min(available_cores(), max_threads);
    return requested == 0 ? cores : requested;
}

void for_each_chunk(std::uint64_t count, std::uint64_t chunk, int threads,
                    const std::function<void(std::uint64_t, std::uint64_t)>& body) {
    if (chunk == 0) throw std::invalid_argument("[for_each_chunk] expected chunks of at least 1, got 0");
    const std::uint64_t chunks = count / chunk + std::uint64_t{count % chunk != 0};
    const std::function<void(std::uint64_t)> run = [&](std::uint64_t i) {
        const FloatEnvironment environment;
        body(i * chunk, std::min(count, (i + 1) * chunk));
    };
    const auto workers =
        static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(thread_count(threads)), chunks));
    if (workers <= 1) {
        for (std::uint64_t i = 0; i < chunks; ++i) run(i);
        return;
    }
    Job job{.chunks = chunks, .run = run};
    if (team == nullptr) crew().work(job, workers - 1);
    else team([](void* all) { static_cast<Job*>(all)->take_chunks(); }, &job, static_cast<unsigned>(workers), 0);
    if (job.error) std::rethrow_exception(job.error);
}

int take_most_threads() { return crew().take_most_threads(); }

std::optional<ThreadShortage> thread_shortage() { return crew().shortage(); }

} // namespace amp
