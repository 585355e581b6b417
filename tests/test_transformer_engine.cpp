// TransformerEngine's quantized tensors in pickles that do not hold what its classes would, and its trees of dumps.
#include "io_golden.h"
#include "pickles.h"

#include <ampscope/sim/io/recording.h>

using namespace amp;
using namespace amp::test;

namespace {

const std::string none = "N", yes = "\x88";
const std::string e4m3 = "ctransformer_engine.pytorch.constants\nDType\nK\x07\x85R";
std::string bytes(std::int64_t rows, std::int64_t columns) {
    return tensor(0, {rows, columns}, {columns, 1}, "ByteStorage", 24);
}
std::string floats(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& stride) {
    return tensor(0, shape, stride);
}
const std::string one = floats({1}, {1});

/// A dict with the call of a function of TransformerEngine as "q", and another tensor.
std::string with_call(const std::string& function, const std::vector<std::string>& args) {
    std::string call = "ctransformer_engine.pytorch.tensor.x\n" + function + "\n(";
    for (const std::string& arg : args) call += arg;
    return pickled("}(" + text("q") + call + "tR" + text("w") + tensor(0, {6}, {1}) + "u");
}
std::string float8(const std::vector<std::string>& args) { return with_call("_make_float8_tensor_in_reduce_ex", args); }
std::string mxfp8(const std::vector<std::string>& args) { return with_call("_make_mxfp8_tensor_in_reduce_ex", args); }

/// The file is read without "q", of which there is this note.
void check_skipped(const std::string& pickle, const std::string& note) {
    const Scratch scratch;
    const auto file = open_tensor_file(pt_of(scratch / "a.pt", pickle));
    REQUIRE(file->tensors().size() == 1);
    CHECK(file->tensors()[0].name == "w");
    REQUIRE(file->notes().size() == 1);
    CHECK_MESSAGE(file->notes()[0].find(note) != std::string::npos, file->notes()[0]);
}

} // namespace

TEST_CASE("calls that are given something else are skipped, and said to be") {
    const std::string lacks = "'q': is a Float8Tensor of TransformerEngine without codes and scales; save "
                              "tensor.dequantize(); skipped";
    const std::string type = "whose codes have an unknown type";
    check_skipped(float8({bytes(2, 3), e4m3}), lacks);
    check_skipped(float8({one, e4m3, "K\x01"}), lacks);
    check_skipped(float8({text("x"), e4m3, one}), lacks);
    check_skipped(float8({}), type);
    check_skipped(float8({bytes(2, 3), none, one}), type);
    check_skipped(float8({bytes(2, 3), "K\x06", one}), type); // BF16
    check_skipped(float8({bytes(2, 3), "K\x0a", one}), type); // FP4
    check_skipped(float8({bytes(2, 3), "ctransformer_engine_torch\nDType\n)\x81" + text("7") + "b", one}), type);
    check_skipped(with_call("_make_nvfp4_tensor_in_reduce_ex", {none, bytes(2, 8), bytes(2, 1)}), type);
    const std::string codes = "a quantized tensor whose codes are no bytes in C order";
    check_skipped(float8({one, e4m3, one}), codes);
    check_skipped(float8({tensor(0, {2, 3}, {1, 2}, "ByteStorage", 24), e4m3, one}), codes);
    check_skipped(float8({tensor(0, {2, 3}, {0, 1}, "ByteStorage", 24), e4m3, one}), codes);
    const std::string scale = "a quantized tensor whose scales are none of its class's";
    check_skipped(float8({bytes(2, 3), e4m3, bytes(1, 1)}), scale);
    check_skipped(float8({bytes(2, 3), e4m3, floats({1 << 30}, {0})}), scale);
    check_skipped(mxfp8({bytes(2, 3), floats({2, 1}, {1, 1}), none, none, e4m3}), scale);
    check_skipped(mxfp8({bytes(2, 3), tensor(0, {1 << 30, 1}, {1, 1}, "ByteStorage", 24), none, none, e4m3}), scale);
    const std::string few = "a quantized tensor without a scale for each of its blocks";
    check_skipped(float8({bytes(2, 3), e4m3, floats({2}, {1})}), few);
    check_skipped(float8({bytes(2, 3), e4m3, floats({0}, {1})}), few);
    check_skipped(mxfp8({bytes(3, 2), bytes(2, 1), none, none, e4m3}), few);
    check_skipped(mxfp8({bytes(2, 3), tensor(0, {2}, {1}, "ByteStorage", 24), none, none, e4m3}), few);
    check_skipped(with_call("_make_float8_blockwise_tensor_in_reduce_ex",
                            {none, bytes(2, 3), floats({1, 1}, {1, 1}), none, none, e4m3}),
                  few);
    const std::vector<std::string> fp4 = {none, bytes(2, 8), bytes(2, 1), none, none};
    const auto nvfp4 = [&](std::vector<std::string> more) {
        more.insert(more.begin(), fp4.begin(), fp4.end());
        return with_call("_make_nvfp4_tensor_in_reduce_ex", more);
    };
    check_skipped(nvfp4({none, none, "K\x0a"}), "without an amax");
    check_skipped(nvfp4({floats({3}, {1}), none, "K\x0a"}), "whose amax is neither one number nor one for each row");
    check_skipped(nvfp4({floats({0}, {1}), none, "K\x0a"}), "whose amax is neither one number nor one for each row");
    check_skipped(nvfp4({bytes(1, 1), none, "K\x0a"}), "whose amax is neither one number nor one for each row");
    check_skipped(with_call("_make_nvfp4_tensor_in_reduce_ex",
                            {none, bytes(0, 8), bytes(2, 1), none, none, floats({0}, {1}), none, "K\x0a"}),
                  "whose amax is neither one number nor one for each row");
    check_skipped(nvfp4({one, none, "K\x0a", none, none, yes}), "whose scales are in the order of matrix products");
}

TEST_CASE("codes and scales that do not lie in their storages are errors") {
    const auto refused = [](const std::string& pickle, const std::string& says) {
        const Scratch scratch;
        const std::string error = error_of(pt_of(scratch / "a.pt", pickle));
        CHECK_MESSAGE(error.find(says) != std::string::npos, error);
    };
    constexpr std::int64_t huge = std::int64_t{1} << 60;
    refused(float8({bytes(5, 5), e4m3, one}), "tensor 'q': reaches beyond its storage of 24 bytes");
    refused(float8({bytes(huge, 8), e4m3, one}), "tensor 'q': its shape has more elements than any file can hold");
    refused(float8({bytes(2, 3), e4m3, tensor(6, {1}, {1})}), "tensor 'q': reaches beyond its storage");
    refused(float8({bytes(2, 3), e4m3, tensor(0, {1}, {1}, "FloatStorage", 6, "9")}), "data/9 is not in the archive");
    constexpr std::int64_t wraps = std::int64_t{1} << 32; // 2^64 scales
    refused(mxfp8({bytes(2, 3), tensor(0, {wraps, wraps}, {wraps, 1}, "ByteStorage", 24), none, none, e4m3}),
            "tensor 'q': reaches beyond its storage");
}

TEST_CASE("a call whose arguments contain the call is read once") {
    // A list that is the arguments, to which the result is appended: the codes' type is the call itself.
    const std::string call = "]q\x01"
                             "0ctransformer_engine.pytorch.tensor.x\n_make_float8_tensor_in_reduce_ex\nh\x01R";
    check_skipped(pickled("}(" + text("q") + call +
                          "q\x02h\x01(h\x02h\x02h\x02"
                          "e0" +
                          text("w") + tensor(0, {6}, {1}) + "u"),
                  "whose codes have an unknown type");
    const std::string pair = "]q\x01"
                             "0ctransformer_engine.pytorch.tensor.x\n_make_hybrid_quantized_tensor_in_reduce_ex"
                             "\nh\x01R";
    const Scratch scratch;
    const fs::path path = pt_of(scratch / "a.pt", pickled(pair + "q\x02h\x01(h\x02h\x02"
                                                                 "e0"));
    CHECK(error_of(path).find("containers nest too deep or too often") != std::string::npos);
}

TEST_CASE("trees of DumpTensors") {
    const Scratch scratch;
    const auto put = [&](const std::string& file, const std::string& source = "te_dump.pt") {
        fs::create_directories((scratch / file).parent_path());
        fs::copy_file(golden(source), scratch / file);
    };
    struct Row {
        std::string_view tensor;
        TensorKind kind;
    };
    constexpr std::array rows = {
        Row{"activation", TensorKind::activation},     Row{"weight", TensorKind::weight},
        Row{"output", TensorKind::activation},         Row{"gradient", TensorKind::activation_gradient},
        Row{"dgrad", TensorKind::activation_gradient}, Row{"wgrad", TensorKind::weight_gradient}};
    for (const Row& row : rows) put(fmt::format("tensor_dumps/rank_1/iter_000100/h_0_fc1_{}.pt", row.tensor));
    put("tensor_dumps/rank_0/iter_000200/h_0_fc1_wgrad.pt");
    const Recording recording = find_tensors({scratch.folder()});
    CHECK(recording.errors.empty());
    REQUIRE(recording.tensors.size() == 2 * rows.size() + 2);
    for (const RecordedTensor& t : recording.tensors) {
        const bool first = t.entry.name.starts_with("rank_0.");
        const auto* row = std::ranges::find_if(rows, [&](const Row& r) {
            return t.entry.name.starts_with(fmt::format("rank_{}.h_0_fc1_{}.", first ? 0 : 1, r.tensor));
        });
        REQUIRE(row != rows.end());
        CHECK(t.kind == row->kind);
        CHECK(t.step == (first ? 200 : 100));
        CHECK(t.layer == (first ? "rank_0.h_0_fc1" : "rank_1.h_0_fc1"));
        CHECK(t.recorded_scale == 1);
        const bool high = t.entry.name.ends_with(".high_precision");
        CHECK(t.entry.stored().name == (high ? "BF16" : "F8_E4M3"));
        CHECK((high || t.entry.name.ends_with(".quantized")));
    }
    REQUIRE(recording.warnings.size() == 1);
    CHECK(recording.warnings[0].ends_with("rank_0/iter_000200/h_0_fc1_wgrad.pt: the tensor stands there twice, before "
                                          "and after quantization, as in 6 more files: --tensor high_precision or "
                                          "--tensor quantized selects one of them"));

    CHECK(find_tensors({scratch.folder()}, {}, {.by_name = true}).warnings.empty());

    SUBCASE("a rank whose files are not there is named") {
        put("tensor_dumps/rank_4/iter_000200/h_0_fc1_wgrad.pt");
        const Recording gaps = find_tensors({scratch.folder()}, {}, {.by_name = true});
        REQUIRE(gaps.warnings.size() == 1);
        CHECK(gaps.warnings[0] == (scratch / "tensor_dumps").string() +
                                      ": dumps up to rank 4, but none of rank 2 and 1 more: their share of each "
                                      "gradient is not counted");
        CHECK(find_tensors({scratch / "tensor_dumps/rank_4"}, {}, {.by_name = true}).warnings.empty());
    }

    SUBCASE("found from inside, too") {
        const fs::path before = fs::current_path();
        fs::current_path(scratch / "tensor_dumps/rank_0/iter_000200");
        const Recording inside = find_tensors({"h_0_fc1_wgrad.pt"});
        fs::current_path(before);
        REQUIRE(inside.tensors.size() == 2);
        CHECK(inside.tensors[0].entry.name == "rank_0.h_0_fc1_wgrad.high_precision");
        CHECK(inside.tensors[0].step == 200);
    }
    SUBCASE("other files and other paths are as ever") {
        for (const char* name : {"rank_0/iter_000100/fc1_state.pt", "rank_0/iter_1x/fc1_weight.pt",
                                 "rank_x/iter_000100/fc1_weight.pt", "rank_0/iter_-1/fc1_weight.pt",
                                 "rank_0/iter_99999999999999999999/fc1_weight.pt", "rank_0/iter_000100/_weight.pt"})
            put(std::string("other/") + name);
        put("other/rank_0/iter_000100/model_weight.pt", "bare.pt"); // no dump
        for (const RecordedTensor& t : find_tensors({scratch / "other"}).tensors) {
            CHECK((t.entry.name == "high_precision" || t.entry.name == "quantized" || t.entry.name == "model_weight"));
            CHECK(!t.step);
            CHECK(t.kind == TensorKind::weight_gradient);
        }
    }
}
