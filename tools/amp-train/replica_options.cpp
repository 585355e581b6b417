#include <ampscope/tools/amp-train/replica_options.h>

#include <ampscope/tools/command_line.h>

#include <array>
#include <string_view>

namespace amp::train_tool {

void add_replica_options(CLI::App& app, ReplicaWords& w, TrainOptions& options) {
    constexpr const char* group = "Data-parallel replicas";
    app.add_option(
           "--replicas", options.replicas,
           "Number of replicas, each with its own batches; as many processes, if mpirun or srun starts them; default 1")
        ->transform(whole_number(1, 4096))
        ->group(group);
    app.add_option("--all-reduce", w.all_reduce,
                   "Algorithm of the sum over replicas: " + either(all_reduce_order_names) +
                       "; default ring; see --list")
        ->group(group);
    app.add_option("--all-reduce-format", w.transport,
                   "Format of what is sent and summed; default fp32, or e4m3 with ms-amp's scale; or blocks, such as "
                   "mxfp8, to which each message is cast, and which are summed in FP32")
        ->group(group);
    app.add_option("--all-reduce-scaling", w.scaling,
                   "none (default), or ms-amp: a power-of-two scale for each tensor, for weights of layers in FP8")
        ->group(group);
    app.add_option("--divide", w.divide,
                   "Division by the number of replicas: before (default) or after the sum, or nccl-avg: 1 / N rounded, "
                   "then each gradient times it")
        ->group(group);
    app.add_option("--shard", w.shard, "Sharded optimizer: " + either(sharding_names) + "; default none; see --list")
        ->group(group);
    app.add_option("--gather-format", w.gather,
                   "Format or blocks in which a sharded optimizer gathers weights; default: that of master weights")
        ->group(group);
}

AllReduceOptions all_reduce_of(const ReplicaWords& w) {
    constexpr std::array<std::string_view, 2> scalings = {"none", "ms-amp"};
    const auto scaled = enumerator_of<bool>("--all-reduce-scaling", "scaling", scalings, w.scaling);
    const Payload payload = of_option("--all-reduce-format", [&] {
        return payload_of(!w.transport.empty() ? std::string_view(w.transport) : scaled ? "e4m3" : "fp32");
    });
    return {.order = enumerator_of<AllReduceOrder>("--all-reduce", "algorithm", all_reduce_order_names, w.all_reduce),
            .division = enumerator_of<AllReduceDivision>("--divide", "division", all_reduce_division_names, w.divide),
            .transport = payload.format,
            .scaled = scaled,
            .blocks = payload.blocks};
}

ShardOptions shard_of(const ReplicaWords& w) {
    ShardOptions o{.sharding = enumerator_of<Sharding>("--shard", "sharding", sharding_names, w.shard)};
    if (!w.gather.empty()) o.gather = of_option("--gather-format", [&] { return payload_of(w.gather); });
    return o;
}

} // namespace amp::train_tool
