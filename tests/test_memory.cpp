// The memory of a precision, against bytes counted by hand from the layers of networks, and which of them Muon updates.
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/plan.h>

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

using namespace amp;

namespace {

MemoryAccount account(const char* network, const char* precision_text, TrainOptions o = {}) {
    o.model = {.name = network, .width = 16, .depth = 2, .heads = 2};
    o.precision = precision(precision_text);
    const Dataset data = model(network).reads_tokens ? modular_data(13) : digits_data();
    return memory_of(build_training_program(o, data));
}

std::int64_t elements_of(const std::vector<MemoryAccount::Row>& rows, std::string_view purpose) {
    std::int64_t sum = 0;
    for (const MemoryAccount::Row& row : rows) sum += row.purpose == purpose ? row.elements : 0;
    return sum;
}

} // namespace

TEST_CASE("bytes a parameter, as kept and with gradients as computed") {
    // Copy, master weight, gradient, m, v, compensation. In the mlp every layer is cast, by all of these precisions.
    struct Row {
        const char *network, *precision;
        double kept, computed;
    };
    // Of the gpt autocast casts linear layers only, 2 (3 (16^2 + 16) + 16^2 + 4 16^2 + 64 + 4 16^2 + 16) + 15 16 + 15
    // parameters, and neither norms, 2 (4 16) + 2 16, nor embeddings, (15 + 4) 16.
    const double layers = 2 * 3200 + 255, others = 2 * 64 + 32 + 19 * 16, cast = layers / (layers + others);
    for (const Row& row :
         {Row{"mlp", "fp32", 4 + 4 + 4 + 4, 4 + 4 + 4 + 4}, Row{"mlp", "tf32", 4 + 4 + 4 + 4, 4 + 4 + 4 + 4},
          Row{"mlp", "master-fp16", 2 + 4 + 4 + 4 + 4, 2 + 4 + 2 + 4 + 4},
          Row{"mlp", "master-bf16", 2 + 4 + 4 + 4 + 4, 2 + 4 + 2 + 4 + 4},
          Row{"gpt", "master-fp16", 2 + 4 + 4 + 4 + 4, 2 + 4 + 2 + 4 + 4},
          Row{"mlp", "amp-fp16", 2 + 4 + 4 + 4 + 4, 2 + 4 + 2 + 4 + 4},
          Row{"gpt", "amp-bf16", 2 * cast + 4 + 4 + 4 + 4, 16},
          Row{"mlp", "amp-bf16,m=bf16,v=bf16", 2 + 4 + 4 + 2 + 2, 2 + 4 + 2 + 2 + 2},
          Row{"mlp", "pure-bf16", 2 + 2 + 2 + 2, 2 + 2 + 2 + 2},
          Row{"mlp", "pure-bf16-kahan", 2 + 2 + 2 + 2 + 2, 2 + 2 + 2 + 2 + 2}}) {
        CAPTURE(row.network);
        CAPTURE(row.precision);
        const MemoryAccount memory = account(row.network, row.precision);
        CHECK(memory.bytes_per_parameter() == doctest::Approx(row.kept).epsilon(1e-12));
        CHECK(memory.bytes_with_computed_gradients() == doctest::Approx(row.computed).epsilon(1e-12));
    }
    CHECK(account("gpt", "fp32").parameters == 7119);
}

TEST_CASE("the optimizer, micro-batches and replicas") {
    TrainOptions sgd;
    sgd.optimizer = optimizer("sgd").options;
    CHECK(account("mlp", "master-fp16", sgd).bytes_per_parameter() == 2 + 4 + 4);
    CHECK(account("mlp", "master-fp16", sgd).bytes_with_computed_gradients() == 2 + 4 + 2);
    sgd.optimizer.momentum = 0.9;
    CHECK(account("mlp", "master-fp16", sgd).bytes_per_parameter() == 2 + 4 + 4 + 4);
    // The gradients that are added are those that a single micro-batch of a single replica computes.
    TrainOptions parts;
    parts.micro_batches = 3;
    CHECK(account("mlp", "master-fp16", parts).bytes_with_computed_gradients() == 16);
    parts.replicas = 2;
    CHECK(account("mlp", "master-fp16", parts).bytes_with_computed_gradients() == 16);
    CHECK(account("mlp", "master-fp16", parts).bytes_per_parameter() == 18);
}

TEST_CASE("every preset keeps and computes a gradient for each parameter") {
    for (const PrecisionRow& row : precisions())
        for (const char* network : {"mlp", "cnn", "resnet", "gpt", "llama"}) {
            CAPTURE(row.name);
            CAPTURE(network);
            const MemoryAccount memory = account(network, row.name.data());
            CHECK(elements_of(memory.rows, "gradients") == memory.parameters);
            CHECK(elements_of(memory.computed_gradients, "gradients") == memory.parameters);
            CHECK(memory.bytes_with_computed_gradients() <= memory.bytes_per_parameter());
        }
}

namespace {

TrainingProgram muon_program(std::string_view network, bool tied = false, const char* precision_text = "fp32") {
    TrainOptions o;
    o.model = {.name = std::string(network), .width = 16, .depth = 2, .heads = 2};
    o.model.tied = tied;
    o.optimizer = optimizer("muon").options;
    o.precision = precision(precision_text);
    return build_training_program(o, model(network).reads_tokens ? modular_data(13) : digits_data());
}

/// The names of the weights that Muon updates.
std::vector<std::string> updated_by_muon(const TrainingProgram& t) {
    std::vector<std::string> names;
    for (const Instruction& i : t.program.update)
        if (const auto* const update = std::get_if<op::Update>(&i.op);
            update != nullptr && update->options.kind == OptimizerKind::muon)
            names.push_back(t.program[update->weight].name);
    return names;
}

} // namespace

TEST_CASE("Muon updates the hidden matrices, and AdamW has a v for the others") {
    using Names = std::vector<std::string>;
    CHECK(updated_by_muon(muon_program("mlp")) == Names{"h.0.weight", "h.1.weight"}); // not the head
    CHECK(updated_by_muon(muon_program("cnn")) == Names{"c1.weight", "c2.weight"});
    Names layers; // neither embeddings nor norms, nor the head, tied or not
    for (const char* block : {"h.0.", "h.1."})
        for (const char* layer : {"attn.q", "attn.k", "attn.v", "attn.o", "mlp.up", "mlp.down"})
            layers.push_back(std::string(block) + layer + ".weight");
    for (const char* precision : {"fp32", "pure-bf16", "amp-fp16", "fp8-current", "nvfp4"}) {
        CAPTURE(precision);
        CHECK(updated_by_muon(muon_program("gpt", false, precision)) == layers);
        CHECK(updated_by_muon(muon_program("gpt", true, precision)) == layers);
    }
    const MemoryAccount memory = memory_of(muon_program("mlp")); // biases, and a head of 10 x 16
    CHECK(elements_of(memory.rows, "optimizer m") == memory.parameters);
    CHECK(elements_of(memory.rows, "optimizer v") == 16 + 16 + 10 + 10 * 16);
    CHECK_THROWS_WITH_AS(muon_program("linear"), doctest::Contains("no hidden matrix"), std::invalid_argument);
    CHECK_THROWS_WITH_AS(muon_program("mlp", false, "ms-amp"), doctest::Contains("not for ms-amp"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(check({.kind = OptimizerKind::muon}), doctest::Contains("a momentum in (0, 1] for Muon"),
                         std::invalid_argument);
    TrainOptions sharded;
    sharded.optimizer = optimizer("muon-rms").options;
    sharded.replicas = 2;
    sharded.shard.sharding = Sharding::zero1;
    CHECK_THROWS_WITH_AS(account("mlp", "fp32", sharded), doctest::Contains("takes no sharded optimizer"),
                         std::invalid_argument);
}
