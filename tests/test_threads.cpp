// Threads: as many work as asked for, every item is done once, and results do not depend on which thread did it. Also,
// how many cores a process has.
#include "io_files.h"
#include "thread_counts.h"

#include <ampscope/sim/backend/cpu/detail/matmul.h>
#include <ampscope/sim/base/cores.h>
#include <ampscope/sim/base/parallel.h>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/wait.h>

using namespace amp;
using namespace amp::test;

namespace {

/// Threads that wait for each other: counts those that arrive before all have or time runs out.
class Meeting {
  public:
    explicit Meeting(std::size_t all) : all_(all) {}
    void come() {
        std::unique_lock lock(mutex_);
        here_.insert(std::this_thread::get_id());
        arrived_.notify_all();
        arrived_.wait_until(lock, end_, [&] { return here_.size() >= all_; });
    }
    [[nodiscard]] std::size_t came() const { return here_.size(); }

  private:
    std::size_t all_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::set<std::thread::id> here_;
    std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + std::chrono::seconds(20);
};

/// Whether `check` holds in a forked child of this process.
template <class Check>
bool holds_in_child(const Check& check) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(check() ? 0 : 1);
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

TEST_CASE("as many threads work at once as are asked for") {
    for (const int threads : thread_counts) {
        CAPTURE(threads);
        const auto all = static_cast<std::size_t>(threads);
        Meeting meeting(all);
        for_each_chunk(all, 1, threads, [&](std::uint64_t, std::uint64_t) { meeting.come(); });
        CHECK(meeting.came() == all);
    }
    CHECK(!thread_shortage());
}

TEST_CASE("also in calls within calls, after calls of other numbers") {
    struct Numbers {
        std::uint64_t outer, inner;
    };
    for (const Numbers n : {Numbers{7, 9}, {2, 100}, {63, 2}, {3, 1}, {1, 3}}) {
        CAPTURE(n.outer);
        CAPTURE(n.inner);
        Meeting meeting(n.outer * n.inner);
        for_each_chunk(n.outer, 1, static_cast<int>(n.outer), [&](std::uint64_t, std::uint64_t) {
            for_each_chunk(n.inner, 1, static_cast<int>(n.inner),
                           [&](std::uint64_t, std::uint64_t) { meeting.come(); });
        });
        CHECK(meeting.came() == n.outer * n.inner);
    }
}

TEST_CASE("every chunk is done once, of any size, of nothing too") {
    for (const int threads : thread_counts)
        for (const std::uint64_t count : {0ul, 1ul, 2ul, 31ul, 997ul})
            for (const std::uint64_t chunk : {1ul, 2ul, 7ul, 996ul, 5000ul}) {
                std::vector<int> done(count);
                bool aligned = true;
                for_each_chunk(count, chunk, threads, [&](std::uint64_t begin, std::uint64_t end) {
                    if (begin % chunk != 0 || end != std::min(count, begin + chunk)) aligned = false;
                    for (std::uint64_t i = begin; i < end; ++i) ++done[i];
                });
                CHECK(aligned);
                CHECK(std::ranges::count(done, 1) == static_cast<std::ptrdiff_t>(count));
            }
    CHECK_THROWS_AS(for_each_chunk(10, 0, 2, [](std::uint64_t, std::uint64_t) {}), std::invalid_argument);
}

TEST_CASE("another library's threads work in place of ours, on the calls of one thread, for a while") {
    static std::atomic<int> calls, asked;
    calls = 0;
    const Team team = [](void (*work)(void*), void* data, unsigned threads, unsigned) {
        ++calls;
        asked = static_cast<int>(threads);
        std::vector<std::thread> others;
        for (unsigned i = 1; i < threads; ++i) others.emplace_back(work, data);
        work(data);
        for (std::thread& t : others) t.join();
    };
    const auto sum = [](int threads) {
        std::atomic<std::uint64_t> total = 0;
        for_each_chunk(1000, 3, threads, [&](std::uint64_t begin, std::uint64_t end) {
            for (std::uint64_t i = begin; i < end; ++i) total += i;
        });
        return total.load();
    };
    {
        const WithTeam with(team);
        CHECK(sum(4) == 499500);
        CHECK((calls == 1 && asked == 4));
        CHECK(sum(1) == 499500); // needs nobody's help
        CHECK(calls == 1);
        std::thread([&] { CHECK(sum(4) == 499500); }).join();
        CHECK(calls == 1);
        {
            const WithTeam without(nullptr);
            CHECK(sum(4) == 499500);
        }
        CHECK(calls == 1);
        std::string said;
        try {
            for_each_chunk(100, 1, 4, [&](std::uint64_t begin, std::uint64_t) {
                if (begin >= 40) throw std::runtime_error(std::to_string(begin));
            });
        } catch (const std::runtime_error& error) {
            said = error.what();
        }
        CHECK(said == "40");
        CHECK(calls == 2);
    }
    CHECK(sum(4) == 499500);
    CHECK(calls == 2);
}

TEST_CASE("a share is never nothing, and shares cover the whole") {
    for (const std::int64_t length : {0, 1, 2, 7, 8, 63, 64, 65, 997})
        for (const int parts : thread_counts)
            for (const std::int64_t unit : {1, 4, 64}) {
                const std::int64_t share = share_of(length, parts, unit);
                CHECK(share >= unit);
                CHECK(share % unit == 0);
                CHECK(share * parts >= length);
                CHECK((share - unit) * parts < std::max<std::int64_t>(length, 1)); // no longer than necessary
            }
    CHECK(share_of(10, 0) == 10);
}

TEST_CASE("a product has parts for every thread that its size feeds") {
    for (const int threads : thread_counts) {
        CAPTURE(threads);
        const auto parts = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
            const cpu::ProductPart part = cpu::part_of_product(m, n, k, threads);
            CHECK(part.rows >= 1);
            CHECK(part.columns >= 1);
            return ((m + part.rows - 1) / part.rows) * ((n + part.columns - 1) / part.columns);
        };
        CHECK(parts(1, 1, 1) == 1);
        CHECK(parts(8, 8, 8) == 1); // what the fault of issue 19 divided by
        CHECK(parts(64 * 1000, 64, 64) <= threads);
        CHECK(parts(64 * 1000, 64, 64) > threads * 2 / 3);
        CHECK(parts(6400, 6400, 64) <= threads); // 100 parts of rows alone
        CHECK(parts(6400, 6400, 64) > threads * 2 / 3);
    }
}

TEST_CASE("the exception that one thread would meet") {
    for (const int threads : thread_counts)
        for (int again = 0; again < 10; ++again) {
            std::atomic<bool> later_failed = false;
            std::string what;
            try {
                for_each_chunk(100, 1, threads, [&](std::uint64_t begin, std::uint64_t) {
                    if (begin == 3) { // throws after later chunks, if there are threads for these
                        for (int i = 0; i < 1000 && !later_failed; ++i) std::this_thread::yield();
                        throw std::runtime_error("3");
                    }
                    if (begin < 5) return;
                    later_failed = true;
                    throw std::runtime_error(std::to_string(begin));
                });
            } catch (const std::runtime_error& error) {
                what = error.what();
            }
            CHECK(what == "3");
        }
}

TEST_CASE("numbers of threads that are none") {
    CHECK(thread_count(0) >= 1);
    CHECK(thread_count(1000) == 1000);
    for (const int threads : {-1, max_threads + 1})
        CHECK_THROWS_AS(for_each_chunk(10, 1, threads, [](std::uint64_t, std::uint64_t) {}), std::invalid_argument);
}

TEST_CASE("a forked child has threads of its own") {
    for_each_chunk(8, 1, 8, [](std::uint64_t, std::uint64_t) {});
    CHECK(holds_in_child([] {
        Meeting meeting(5);
        for_each_chunk(5, 1, 5, [&](std::uint64_t, std::uint64_t) { meeting.come(); });
        return meeting.came() == 5;
    }));
}

TEST_CASE("cores are those of the affinity mask") {
    cpu_set_t all;
    REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
    CHECK(available_cores() <= CPU_COUNT(&all));
    CHECK(holds_in_child([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
            if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
        return ::sched_setaffinity(0, sizeof one, &one) == 0 && available_cores() == 1;
    }));
}

namespace {

/// A made-up tree of /proc and control groups.
class Machine {
  public:
    Machine(const std::string& mounts, const std::string& groups) {
        put("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts);
        put("proc/self/cgroup", groups);
    }
    Machine& put(const std::string& path, const std::string& text) {
        fs::create_directories((root_ / path).parent_path());
        write_file(root_ / path, text);
        return *this;
    }
    [[nodiscard]] int cores() const { return quota_cores(root_.folder()).value_or(0); }

  private:
    Scratch root_;
};

const std::string unified = "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string legacy = "33 32 0:30 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n"
                           "31 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:2 - cgroup cgroup rw,cpu,cpuacct\n";
const std::string legacy_groups = "9:cpuset:/other\n4:memory:/a\n2:cpu,cpuacct:/a/b\n0::/\n";

} // namespace

TEST_CASE("cores are those of the quotas of version 2") {
    Machine m(unified, "0::/system.slice/job\n");
    CHECK(m.cores() == 0);
    CHECK(m.put("sys/fs/cgroup/system.slice/job/cpu.max", "max 100000\n").cores() == 0);
    CHECK(m.put("sys/fs/cgroup/system.slice/job/cpu.max", "400000 100000\n").cores() == 4);
    CHECK(m.put("sys/fs/cgroup/system.slice/job/cpu.max", "250000 100000\n").cores() == 3);
    CHECK(m.put("sys/fs/cgroup/system.slice/job/cpu.max", "5000 100000\n").cores() == 1);
    CHECK(m.put("sys/fs/cgroup/system.slice/job/cpu.max", "9000000000000000000 1\n").cores() > 1000000);
    // quota of a group above
    CHECK(m.put("sys/fs/cgroup/system.slice/cpu.max", "200000 100000\n").cores() == 2);
    CHECK(m.put("sys/fs/cgroup/cpu.max", "100000 100000\n").cores() == 1);
    CHECK(m.put("sys/fs/cgroup/cpu.max", "nonsense\n").cores() == 2);
}

TEST_CASE("cores are those of the quotas of version 1") {
    Machine m(legacy, legacy_groups);
    CHECK(m.put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n")
              .put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n")
              .cores() == 0);
    CHECK(m.put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "350000\n").cores() == 4);
    m.put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "30000\n");
    CHECK(m.put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "10000\n").cores() == 3);
}

TEST_CASE("cores in a container that sees a part of the tree, or other paths than its host") {
    const std::string part = "30 22 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    CHECK(Machine(part, "0::/docker/x\n").put("sys/fs/cgroup/cpu.max", "200000 100000").cores() == 2);
    CHECK(Machine(part, "0::/docker/x/y\n").put("sys/fs/cgroup/y/cpu.max", "300000 100000").cores() == 3);
    CHECK(Machine(part, "0::/elsewhere\n").put("sys/fs/cgroup/cpu.max", "200000 100000").cores() == 2);
    CHECK(Machine(unified, "0::/../outside\n").put("sys/fs/cgroup/cpu.max", "200000 100000").cores() == 2);
    CHECK(Machine("", "").cores() == 0);
    CHECK(!quota_cores("/nowhere"));
}
