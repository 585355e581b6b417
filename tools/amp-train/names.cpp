#include <ampscope/tools/amp-train/options.h>
#include <ampscope/tools/chart/terminal.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace amp::train_tool {

namespace {

std::string list_of_accumulators() {
    std::string text = "Accumulators:\n";
    for (const HardwareRow& row : hardware_rows) {
        text += fmt::format("  {:<23}{}; {}", row.name, row.operands, name_of(row.evidence));
        if (!row.acc16.empty()) text += fmt::format("; -acc16: {}", row.acc16);
        if (!row.note.empty()) text += fmt::format("; {}", row.note);
        text += "\n";
    }
    for (const PlainSum& row : plain_sums) text += fmt::format("  {:<23}any; {}\n", row.name, row.meaning);
    text += "Or a format: a chain of fused multiply-adds in it. NAME-acc16: the hardware's FP16 accumulator.\n"
            "NAME-promoteN: sums of N products, added in FP32. A+B: each product takes the first that reads its "
            "operands.\n";
    for (const SplitRow& row : split_rows)
        text += fmt::format("NAME-splitN{}: split-K, {}.\n", row.suffix, row.meaning);
    return text;
}

/// The blocks to which messages may be cast, or those to which they may not.
std::string names_of_blocks(bool of_messages) {
    std::vector<std::string_view> names;
    for (const BlockSpec& row : block_formats)
        if (takes_messages(row) == of_messages) names.push_back(row.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace

std::string list_of_names() {
    std::string text = "Precisions:\n";
    for (const PrecisionRow& row : precisions()) text += fmt::format("  {:<23}{}\n", row.name, row.meaning);
    text += "Models:\n";
    for (const ModelRow& row : models()) text += fmt::format("  {:<23}{}\n", row.name, row.meaning);
    text += "Optimizers:\n";
    for (const OptimizerRow& row : optimizers()) text += fmt::format("  {:<23}{}\n", row.name, row.source);
    text += "Loss scalers:\n";
    for (const LossScalerRow& row : loss_scalers) text += fmt::format("  {:<23}{}\n", row.name, row.source);
    text += "Scaling recipes (scaling=NAME):\n";
    for (const ScalingRecipe& row : scaling_recipes()) text += fmt::format("  {:<23}{}\n", row.name, row.source);
    const auto rows = [&](std::string_view title, const auto& table) {
        text += fmt::format("{}:\n", title);
        for (const auto& row : table) text += fmt::format("  {:<23}{} ({})\n", row.name, row.meaning, row.source);
    };
    rows("Algorithms of the all-reduce (--all-reduce NAME)", all_reduce_rows);
    rows("Divisions by the number of replicas (--divide NAME)", all_reduce_divisions);
    rows("Sharded optimizers (--shard NAME)", shardings);
    text += fmt::format("Blocks of messages and of gathered weights:\n  {}\n", names_of_blocks(true));
    text += fmt::format("More blocks of gathered weights (--shard zero1 --gather-format NAME):\n  {}\n",
                        names_of_blocks(false));
    return folded(text + list_of_accumulators());
}

} // namespace amp::train_tool
