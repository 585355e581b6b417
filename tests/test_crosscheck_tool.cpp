// amp-crosscheck vectors: on files made by the oracle, on broken ones, and on outputs recorded on real GPUs.
#include "accumulator_inputs.h"
#include "oracle_accumulator.h"
#include "sweep.h"
#include "tool.h"

#include <ampscope/sim/analysis/recorded_products.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace amp;
using namespace amp::test;
using Json = nlohmann::json;

namespace {

constexpr std::uint64_t cases = 300, k = 40;

struct Arrays {
    std::vector<float> a, b, c;
    std::vector<std::uint32_t> d;
};

/// Inputs, and the outputs of such hardware by the oracle.
Arrays arrays_of(const oracle::Matrix& m) {
    Operands left(m.a, 1), right(m.b, 2), addend(m.result == "fp16" ? "fp16" : "fp32", 3);
    Arrays x{left.make(Inputs::random_bits, cases * k),
             right.make(Inputs::scaled, cases * k),
             addend.make(Inputs::scaled, cases),
             {}};
    for (std::size_t i = 0; i < cases; ++i) {
        const auto row = [&](const std::vector<float>& v) {
            const auto at = v.begin() + static_cast<std::ptrdiff_t>(i * k);
            return std::vector<float>(at, at + static_cast<std::ptrdiff_t>(k));
        };
        x.d.push_back(oracle::dot(m, row(x.a), row(x.b), x.c[i]));
    }
    return x;
}

std::string write_arrays(const fs::path& path, const Arrays& x, const std::string& output, DType dtype = DType::u32,
                         std::uint64_t rows = cases) {
    TensorWriter writer = create_tensor_file(path, {{.name = "a", .dtype = dtype, .shape = {rows, x.a.size() / rows}},
                                                    {.name = "b", .dtype = dtype, .shape = {rows, x.b.size() / rows}},
                                                    {.name = "c", .dtype = dtype, .shape = {x.c.size()}},
                                                    {.name = output, .dtype = dtype, .shape = {x.d.size()}}});
    writer.append(std::as_bytes(std::span(x.a)));
    writer.append(std::as_bytes(std::span(x.b)));
    writer.append(std::as_bytes(std::span(x.c)));
    writer.append(std::as_bytes(std::span(x.d)));
    writer.commit();
    return path.string();
}

Outcome vectors(const std::string& arguments) { return run_command(AMP_CROSSCHECK " vectors " + arguments); }

/// A published parameter set by its name; its operands are E5M2 if there is a choice.
oracle::Matrix matrix(const std::string& name) {
    std::vector<oracle::Matrix> found;
    for (const oracle::Matrix& m : oracle::matrices())
        if (m.name == name) found.push_back(m);
    return found.back();
}

/// Recordings of one GPU and format, and the row of matrix hardware to compare them with.
struct Row {
    const char *row, *file;
};

/// Checks that every output of every file is what its row gives, `outputs` of them if the files are here.
void check_recorded(std::size_t outputs, const std::vector<Row>& rows) {
    std::size_t compared = 0;
    for (const Row& r : rows) {
        const fs::path file = shared(fmt::format("hardware/{}.npz", r.file),
                                     "dot products recorded on GPUs: tests/data/matlab_tensor_core.py gets them");
        if (file.empty()) return;
        for (const RecordedComparison& c : compare_recorded(file, {.accumulator = r.row})) {
            CAPTURE(r.file);
            CHECK(c.cases == 5000);
            report(fmt::format("{} {} on {}", c.accumulator.name, c.output, r.file),
                   {.cases = c.cases, .mismatches = c.mismatches});
            ++compared;
        }
    }
    CHECK(compared == outputs);
}

} // namespace

TEST_CASE("a file that agrees, and one of which one bit does not") {
    const Scratch scratch;
    for (const char* name : {"ampere-fp16", "ampere-fp16-acc16", "hopper-bf16", "ada-tf32", "hopper-wgmma-fp8",
                             "hopper-mma-fp8-acc16", "blackwell-mma-fp8"}) {
        CAPTURE(name);
        const oracle::Matrix m = matrix(name);
        const std::string output = m.result == "fp16" ? "d_fp16" : "d_fp32";
        Arrays x = arrays_of(m);
        const std::string file = write_arrays(scratch / "x.safetensors", x, output);
        const Outcome good = vectors(fmt::format("{} {} --json", name, file));
        CHECK_MESSAGE(good.code == 0, good.out, good.err);
        const Json json = Json::parse(good.out)["vectors"];
        REQUIRE(json.size() == 1);
        CHECK(json[0]["cases"] == cases);
        CHECK(json[0]["mismatches"] == 0);
        CHECK(json[0]["accumulator"] == name);
        x.d[123] ^= 0x2000; // changes FP16 outputs, too
        const Outcome bad =
            vectors(fmt::format("{} {} --output {}", name, write_arrays(scratch / "y.safetensors", x, output), output));
        CHECK(bad.code == 3);
        CHECK(bad.out.find("case 123: got 0x") != std::string::npos);
        // The wrong row, or operands read in the wrong format, must not pass.
        CHECK(vectors(fmt::format("{} {} --a e2m1", name, file)).code != 0);
    }
    Arrays x = arrays_of(matrix("ampere-fp16"));
    CHECK(vectors("volta-fp16 " + write_arrays(scratch / "z.safetensors", x, "d_fp32")).code == 3);
}

TEST_CASE("bad input is named") {
    const Scratch scratch;
    const Arrays x = arrays_of(matrix("ampere-fp16"));
    const auto fails = [&](const std::string& arguments, int code, const std::string& text) {
        const Outcome o = vectors(arguments);
        CHECK(o.code == code);
        CHECK_MESSAGE(o.err.find(text) != std::string::npos, o.err);
        CHECK(std::ranges::count(o.err, '\n') <= 2);
    };
    const std::string good = write_arrays(scratch / "good.safetensors", x, "d_fp32");
    const Outcome both = vectors("ampere-fp16 " + (scratch / "gone.npz").string() + " " + good);
    CHECK(both.code == 1);
    CHECK(both.out.find("good.safetensors") != std::string::npos);
    fails("no-such-row " + good, 2, "no-such-row");
    fails("ampere-fp16 " + (scratch / "none.npz").string(), 1, "none.npz");
    fails("ampere-fp16 " + good + " --output d_fp16", 1, "d_fp16");
    fails("ampere-bf16 " + good + " --output d_fp16", 1, "d_fp16");
    fails("hopper-wgmma-fp8 " + good, 1, "no value of e4m3");
    fails("ampere-fp16 " + good + " --a bf16", 2, "takes fp16, not bf16");
    fails("ampere-fp16 " + write_arrays(scratch / "name.safetensors", x, "result"), 1, "d_fp32 or d_fp16");
    fails("ampere-fp16 " + write_arrays(scratch / "rows.safetensors", x, "d_fp32", DType::u32, cases / 2), 1,
          "cases x k");
    Arrays less = x;
    less.d.pop_back();
    fails("ampere-fp16 " + write_arrays(scratch / "less.safetensors", less, "d_fp32"), 1,
          "expected 300 numbers, got 299");
    less.a.clear();
    less.b.clear();
    fails("ampere-fp16", 2, "file");
    fails("no-such-file", 1, "no-such-file: ");
    const std::string bytes = read_file(good);
    write_file(scratch / "short.safetensors", bytes.substr(0, bytes.size() - 100));
    fails("ampere-fp16 " + (scratch / "short.safetensors").string(), 1, "short.safetensors");
}

TEST_CASE("outputs recorded on GPUs" * doctest::test_suite("recordings_of_gpus")) {
    check_recorded(22,
                   {Row{"volta-fp16", "V100_fp16"}, Row{"ampere-fp16", "A100_fp16"}, Row{"ampere-bf16", "A100_bf16"},
                    Row{"ampere-tf32", "A100_tf32"}, Row{"ada-fp16", "Ada_fp16"}, Row{"ada-bf16", "Ada_bf16"},
                    Row{"ada-tf32", "Ada_tf32"}, Row{"ada-e4m3", "Ada_e4m3"}, Row{"ada-e5m2", "Ada_e5m2"},
                    Row{"hopper-fp16", "H100_fp16"}, Row{"hopper-bf16", "H100_bf16"}, Row{"hopper-tf32", "H100_tf32"},
                    Row{"hopper-wgmma-fp8", "H100_e4m3"}, Row{"hopper-wgmma-fp8", "H100_e5m2"},
                    Row{"hopper-mma-fp8", "H100mma_e4m3"}, Row{"hopper-mma-fp8", "H100mma_e5m2"}});
}

TEST_CASE("outputs recorded on a B200" * doctest::test_suite("recordings_of_a_b200")) {
    check_recorded(8, {Row{"blackwell-fp16", "B200_fp16"}, Row{"blackwell-bf16", "B200_bf16"},
                       Row{"blackwell-tf32", "B200_tf32"}, Row{"blackwell-mma-fp8", "B200_e4m3"},
                       Row{"blackwell-mma-fp8", "B200_e5m2"}});
}
