// Tensors that share memory: no two that are held at the same time overlap, and a training in which all memory that is
// free holds NaNs computes the bits of one in which each tensor has memory of its own.
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/memory_plan.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace amp;

namespace {

/// What has a place in the shared memory, and the numbers of the first and the last op of a step that use it.
struct Sharing {
    std::size_t begin = 0, end = 0; ///< In the shared memory.
    std::size_t first = std::numeric_limits<std::size_t>::max(), last = 0;

    /// Whether it holds something before that op runs, which it or a later one needs.
    [[nodiscard]] bool holds_before(std::size_t op) const { return first < op && op <= last; }
    [[nodiscard]] bool used_at(std::size_t op) const { return first <= op && op <= last; }
};

std::vector<const Op*> ops_of(const Program& program) {
    std::vector<const Op*> ops;
    for (const Tape* const tape :
         {&program.forward, &program.backward, &program.check, &program.unscale, &program.update})
        for (const Instruction& i : *tape) ops.push_back(&i.op);
    return ops;
}

std::vector<Sharing> sharing_of(const Program& program, std::span<const TensorId> results) {
    std::map<std::int32_t, Sharing> all;
    for (std::size_t i = 0; i < program.tensors.size(); ++i)
        if (const auto place = program.shared.place(i))
            all[static_cast<std::int32_t>(i)] = {*place, *place + static_cast<std::size_t>(program.tensors[i].count())};
    const std::vector<const Op*> ops = ops_of(program);
    for (std::size_t at = 0; at < ops.size(); ++at) {
        std::vector<TensorId> used = inputs_of(*ops[at]);
        for (const TensorId out : outputs_of(*ops[at])) used.push_back(out);
        for (const TensorId id : used) {
            const auto found = all.find(program[id].storage ? program[id].storage.index : id.index);
            if (found == all.end()) continue;
            found->second.first = std::min(found->second.first, at);
            found->second.last = at;
        }
    }
    for (const TensorId id : results) {
        const auto found = all.find(program[id].storage ? program[id].storage.index : id.index);
        if (found != all.end()) found->second.last = ops.size();
    }
    std::vector<Sharing> list;
    for (const auto& [index, sharing] : all) list.push_back(sharing);
    return list;
}

/// The first element that two of those used at the same time have in common, or that lies outside; empty if none does.
std::string fault_of(const Program& program, std::span<const TensorId> results) {
    const std::vector<Sharing> all = sharing_of(program, results);
    for (std::size_t at = 0; at <= ops_of(program).size(); ++at) {
        std::vector<std::pair<std::size_t, std::size_t>> used;
        for (const Sharing& s : all)
            if (s.used_at(at)) used.emplace_back(s.begin, s.end);
        std::ranges::sort(used);
        for (std::size_t i = 0; i < used.size(); ++i) {
            const std::size_t next = i + 1 < used.size() ? used[i + 1].first : program.shared.size;
            if (used[i].second > next) return "op " + std::to_string(at) + ", element " + std::to_string(next);
        }
    }
    return "";
}

/// Runs each op on the processor, after what nothing holds of the shared memory has become NaN.
class Poisoning final : public Backend {
  public:
    Poisoning(const Program& program, std::span<const TensorId> results)
        : Backend(program), cpu_(program, 1), sharing_(sharing_of(program, results)), ops_(ops_of(program)),
          nans_(program.shared.size, std::numeric_limits<float>::quiet_NaN()) {
        for (std::size_t i = 0; i < program.tensors.size(); ++i)
            if (program.shared.place(i) == std::size_t{0}) first_ = {static_cast<std::int32_t>(i)};
    }
    [[nodiscard]] std::span<float> operator[](TensorId id) override { return cpu_[id]; }
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override { return cpu_.read(id); }
    void run(const Op& op) override {
        poison(static_cast<std::size_t>(std::ranges::find(ops_, &op) - ops_.begin()));
        cpu_.context = context;
        cpu_.found_inf = found_inf;
        cpu_.updates = updates;
        cpu_.run(op);
        found_inf = cpu_.found_inf;
        updates = cpu_.updates;
    }

  private:
    void poison(std::size_t at) {
        std::vector<float> next = nans_;
        for (const Sharing& s : sharing_)
            if (s.holds_before(at)) std::copy(memory() + s.begin, memory() + s.end, next.data() + s.begin);
        std::copy(next.data(), next.data() + next.size(), memory());
    }
    /// The shared memory.
    [[nodiscard]] float* memory() { return cpu_[first_].data(); }

    Cpu cpu_;
    std::vector<Sharing> sharing_;
    std::vector<const Op*> ops_;
    std::vector<float> nans_;
    TensorId first_{}; ///< It lies where the shared memory begins.
};

struct Case {
    const char *model, *precision;
    TrainOptions options{};
    const char* attention = "plain";
    const char* optimizer = "adamw";
};

TrainOptions options_of(const Case& c) {
    TrainOptions o = c.options;
    const double dropout = o.model.dropout;
    const std::int64_t norm_groups = o.model.norm_groups;
    o.model = model(c.model).defaults;
    o.model.width = 16;
    o.model.depth = 2;
    o.model.heads = 2;
    o.model.dropout = dropout;
    o.model.norm_groups = norm_groups;
    o.model.attention = c.attention;
    o.precision = precision(c.precision);
    o.optimizer = optimizer(c.optimizer).options;
    o.batch = 6;
    o.clip = 1;
    return o;
}

std::vector<Case> cases() {
    TrainOptions plain, drops, parts, shards, groups;
    drops.model.dropout = 0.25;
    parts.replicas = parts.micro_batches = 2;
    shards.replicas = 2;
    shards.shard.sharding = Sharding::zero1;
    groups.model.norm_groups = 4;
    return {{"gpt", "fp32", plain},
            {"gpt", "amp-fp16", drops},
            {"gpt", "amp-bf16", parts},
            {"gpt", "fp8-delayed", parts},
            {"gpt", "fp8-current", plain, "fused:4x4"},
            {"gpt", "nvfp4", drops},
            {"gpt", "scaling=ms-amp", shards},
            {"llama", "fp32", parts, "fused:2x1"},
            {"llama", "mxfp8", plain},
            {"llama", "pure-bf16-stochastic", shards},
            {"mlp", "tf32", drops},
            {"mlp", "fp8-block", parts, "plain", "muon"},
            {"cnn", "fp32", plain},
            {"cnn", "amp-fp16", parts},
            {"cnn", "master-bf16", plain, "plain", "adafactor"},
            {"resnet", "fp32", parts},
            {"resnet", "amp-bf16", groups, "plain", "sgd"}};
}

/// What callers may read between steps, activations included.
std::vector<TensorId> read_between(const Trainer& trainer) {
    std::vector<TensorId> all = results_of(trainer.training(), true);
    const std::vector<TensorId> state = trainer.state_tensors();
    all.insert(all.end(), state.begin(), state.end());
    return all;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

} // namespace

TEST_CASE("trainings whose free memory holds NaNs") {
    const Dataset digits = digits_data(), tokens = modular_data(13);
    for (const Case& c : cases()) {
        CAPTURE(std::string(c.model));
        CAPTURE(std::string(c.precision));
        const TrainOptions o = options_of(c);
        const Dataset& data = model(c.model).reads_tokens ? tokens : digits;
        Trainer plain(o, data, 1, Keeps::all);
        const std::vector<TensorId> results = results_of(plain.training(), true);
        Trainer shared(
            o, data, [&](const Program& p) { return std::make_unique<Poisoning>(p, results); }, Keeps::activations);

        const Program& program = shared.training().program;
        CHECK(plain.training().program.shared.places.empty());
        CHECK(fault_of(program, results) == "");
        std::size_t all = 0;
        for (std::size_t i = 0; i < program.tensors.size(); ++i)
            if (const auto place = program.shared.place(i)) {
                CHECK(*place % 16 == 0);
                all += static_cast<std::size_t>(program.tensors[i].count());
            }
        CHECK(program.shared.size < all);

        for (int step = 0; step < 3; ++step) {
            const StepResult want = plain.step(), got = shared.step();
            CHECK(got.loss == want.loss);
            CHECK(got.gradient_norm == want.gradient_norm);
            CHECK(got.amax_activation == want.amax_activation);
            CHECK(got.updates.lost == want.updates.lost);
            for (const TensorId id : read_between(plain)) {
                CAPTURE(program[id].name);
                CHECK(same_bits(shared.backend().read(id), plain.backend().read(id)));
            }
            if (step == 1) CHECK(shared.evaluate().loss == plain.evaluate().loss);
        }
    }
}

TEST_CASE("nobody evaluates within a step, whose gradients share memory with activations") {
    const Dataset data = digits_data();
    Trainer once(options_of({"mlp", "fp32"}), data, 1), halves(once.options(), data, 1);
    const StepResult computed = halves.compute();
    CHECK_THROWS_AS(halves.evaluate(), std::logic_error);
    CHECK(halves.apply(computed).gradient_norm == once.step().gradient_norm);
    CHECK(halves.evaluate().loss == once.evaluate().loss);
}

TEST_CASE("places that overlap are found") {
    const Dataset data = modular_data(13);
    const Trainer trainer(options_of({"gpt", "fp32"}), data, 1);
    Program program = trainer.training().program;
    const std::vector<TensorId> results = results_of(trainer.training(), false);
    REQUIRE(fault_of(program, results) == "");
    const std::vector<Lifetime> lives = lifetimes(program, {&program.forward, &program.backward});
    int moved = 0;
    for (std::size_t i = 0; i < lives.size(); ++i)
        for (std::size_t j = i + 1; j < lives.size() && moved < 20; ++j) {
            const auto a = program.shared.place(i), b = program.shared.place(j);
            if (!a || !b || lives[i].begin > lives[j].end || lives[j].begin > lives[i].end) continue;
            program.shared.places[j] = a; // where another lies that is held at the same time
            CHECK(fault_of(program, results) != "");
            program.shared.places[j] = b;
            ++moved;
        }
    CHECK(moved == 20);
}

TEST_CASE("what is not planned has memory of its own") {
    const Dataset data = digits_data();
    const TrainOptions o = options_of({"mlp", "fp32"});
    const TrainingProgram t = build_training_program(o, data);
    CHECK(t.program.shared.places.empty());
    Cpu cpu(t.program, 1);
    std::vector<const float*> begins;
    for (std::size_t i = 0; i < t.program.tensors.size(); ++i)
        if (!t.program.tensors[i].storage) begins.push_back(cpu[{static_cast<std::int32_t>(i)}].data());
    std::ranges::sort(begins);
    CHECK(std::ranges::adjacent_find(begins) == begins.end());
}
