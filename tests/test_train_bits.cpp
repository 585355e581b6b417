// The same bits for any number of threads, instruction set, compiler and build type; tests/interrupted: after kill -9.
#include "tool.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;

/// One line for each run: its precision and the fingerprint of its whole state.
std::string fingerprints_in(const std::string& json) {
    std::string lines;
    const Json results = Json::parse(json);
    for (const Json& run : results["runs"])
        lines += fmt::format("{} {}\n", run["precision"].get<std::string>(), run["fingerprint"].get<std::string>());
    return lines;
}

std::string fingerprints(const std::string& environment, const std::string& arguments) {
    const Outcome o = run_command(environment + " " AMP_TRAIN " --json - " + arguments);
    CAPTURE(o.err);
    REQUIRE(o.code == 0);
    return fingerprints_in(o.out);
}

const std::string gpt =
    "--steps 20 --batch 16 --width 32 --dropout 0.1 --clip 1 --replicas 2 --all-reduce-format bf16 "
    "--precision fp32,tf32,tf32-truncate,amp-fp16,amp-bf16,master-fp16,pure-bf16,pure-bf16-stochastic,"
    "pure-bf16-kahan,accumulate=fp16,weights=e4m3,activations=e4m3,gradients=e5m2 ";
const std::string cnn =
    "--model cnn --steps 20 --batch 16 --width 8 --depth 3 --activation gelu --optimizer sgd --lr 0.05 "
    "--momentum 0.9 --precision fp32,amp-fp16 ";
const std::string scaled =
    "--steps 12 --batch 16 --width 48 --micro-batches 2 --replicas 2 "
    "--precision fp8-delayed,fp8-current,accumulate=hopper-wgmma-fp8+ampere-bf16,fp8-block,mxfp8,accumulate=blackwell-"
    "fp8,nvfp4,deepseek,fp32,scaling=ms-amp,amp-fp16,accumulate=volta-fp16-acc16,amp-bf16,accumulate=exact,tf32,"
    "accumulate=ampere-tf32-promote16 ";
const std::string fused =
    "--model llama --text alice --context 24 --batch 4 --width 32 --steps 12 --attention fused:8x5,s=bf16,"
    "o=bf16,max=shifted --precision fp32,tf32,amp-fp16,amp-bf16,accumulate=hopper-wgmma-bf16,"
    "pure-bf16 ";

} // namespace

TEST_CASE("weights after 12 and 20 steps, whatever computed them") {
    // Recorded with g++ 12 and AVX-512; every other build and machine must have the same.
    const std::string
        gpt_bits = "fp32 1edc6ab5a0f22e7b\n"
                   "tf32 165d867026f6f2eb\n"
                   "tf32-truncate ebada00569d8e689\n"
                   "amp-fp16 fae2c0d962feedd6\n"
                   "amp-bf16 61db559eab2f8fc6\n"
                   "master-fp16 ccd6ef18639105ea\n"
                   "pure-bf16 c37167081738fee0\n"
                   "pure-bf16-stochastic ac09a280d456b0a0\n"
                   "pure-bf16-kahan,accumulate=fp16,weights=e4m3,activations=e4m3,gradients=e5m2 4683ef733bde7181\n",
        cnn_bits = "fp32 c2c82ade2656ca69\n"
                   "amp-fp16 ff8ae3d6eb67ae52\n",
        scaled_bits = "fp8-delayed 4214f30596c6964d\n"
                      "fp8-current,accumulate=hopper-wgmma-fp8+ampere-bf16 2b2b292be83a24d1\n"
                      "fp8-block 40fc620dd9a0b6ad\n"
                      "mxfp8,accumulate=blackwell-fp8 98707e21a77edca5\n"
                      "nvfp4 72c67344d9d3c1ec\n"
                      "deepseek 1d8b4c8708d53eb8\n"
                      "fp32,scaling=ms-amp 0727f0b6d2d67306\n"
                      "amp-fp16,accumulate=volta-fp16-acc16 dec2ce68fb437662\n"
                      "amp-bf16,accumulate=exact fe4c8780dbe1de7d\n"
                      "tf32,accumulate=ampere-tf32-promote16 08273428946fe0e7\n",
        fused_bits = "fp32 b9d99096b22b3444\n"
                     "tf32 411ee3ca6f4c52df\n"
                     "amp-fp16 0b39169ac4866295\n"
                     "amp-bf16,accumulate=hopper-wgmma-bf16 659b5868354b753c\n"
                     "pure-bf16 d3c289ee96c2a322\n";
    for (const char* set : {"", "AMPSCOPE_INSTRUCTION_SET=avx2", "AMPSCOPE_INSTRUCTION_SET=baseline"}) {
        CAPTURE(set);
        CHECK(fingerprints(set, gpt + "--threads 1") == gpt_bits);
        CHECK(fingerprints(set, cnn + "--threads 3") == cnn_bits);
        CHECK(fingerprints(set, scaled + "--threads 1") == scaled_bits);
        CHECK(fingerprints(set, fused + "--threads 1") == fused_bits);
    }
    CHECK(fingerprints("", gpt + "--threads 3") == gpt_bits);
    CHECK(fingerprints("", cnn + "--threads 1") == cnn_bits);
    CHECK(fingerprints("", scaled + "--threads 3") == scaled_bits);
    CHECK(fingerprints("", fused + "--threads 3") == fused_bits);
}
