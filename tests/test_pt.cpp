// .pt files of PyTorch, damage, and pickles that ask for more than data.
#include "io_golden.h"
#include "pickles.h"

using namespace amp;
using namespace amp::test;

namespace {

void check_refused(const std::string& pickle, const std::string& says) {
    static const Scratch scratch;
    const std::string error = error_of(pt_of(scratch / "a.pt", pickle));
    CHECK_MESSAGE(error.find(says) != std::string::npos, error.substr(0, 200));
}

} // namespace

TEST_CASE("pt files of PyTorch") { check_golden(".pt"); }

TEST_CASE("damaged pt files") { check_damage(".pt"); }

TEST_CASE("the old format is refused with advice") {
    const Scratch scratch;
    const fs::path path = write_file(scratch / "legacy.pt", read_file(golden("legacy.pt.bad")));
    CHECK(error_of(path).find("before PyTorch 1.6") != std::string::npos);
}

TEST_CASE("a pickle made by hand is read") {
    const Scratch scratch;
    const auto file = open_tensor_file(pt_of(scratch / "a.pt", pickled(dict_of("w", tensor(1, {2, 2}, {1, 2})))));
    CHECK(file->tensors()[0].name == "w");
    CHECK(file->tensors()[0].storage_order);
    CHECK(tensor_bytes(*file, 0) == "efghijklmnopqrst");
}

TEST_CASE("layouts that do not lie in their storage are refused") {
    const auto refused = [](const std::string& value, const std::string& says) {
        check_refused(pickled(dict_of("w", value)), says);
    };
    constexpr std::int64_t huge = std::int64_t{1} << 62;
    refused(tensor(0, {7}, {1}), "reaches beyond its storage");
    refused(tensor(1, {6}, {1}), "reaches beyond its storage");
    refused(tensor(0, {2, 3}, {4, 1}), "reaches beyond its storage");
    refused(tensor(huge, {2}, {huge}), "reaches beyond its storage");
    refused(tensor(0, {2, 2}, {huge, huge}), "reaches beyond its storage");
    refused(tensor(0, {3}, {huge}), "reaches beyond its storage");
    refused(tensor(0, {huge, 4}, {0, 0}), "more elements than any file");
    refused(tensor(0, {huge >> 8}, {0}), "too many to read one by one; save what it expands");
    refused(tensor(-1, {2}, {1}), "negative number");
    refused(tensor(0, {-2}, {1}), "negative number");
    refused(tensor(0, {2}, {-1}), "negative number");
    refused(tensor(0, {2}, {1, 1}), "differ in length");
    refused(tensor(0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1)), "more than 64 dimensions");
    refused(tensor(0, {2}, {1}, "FloatStorage", 1'000'000), "its storage has 24 bytes where the pickle says 4000000");
    refused(tensor(0, {2}, {1}, "FloatStorage", 2), "its storage has 24 bytes where the pickle says 8");
    refused(tensor(0, {2}, {1}, "FloatStorage", 6, "1"), "data/1 is not in the archive");
    refused(tensor(0, {2}, {1}, "FloatStorage", 6, "../data.pkl"), "is not in the archive");
}

TEST_CASE("a file without a tensor that can be read says what it holds, and what to save") {
    const auto refused = [](const std::string& value, const std::string& says) { check_refused(pickled(value), says); };
    const std::string none = "data.pkl: holds no tensor that can be read";
    refused(dict_of("w", tensor(0, {2}, {1}, "ComplexDoubleStorage", 1)),
            none + ": tensor 'w': dtype complex128 is not read; save torch.view_as_real of it");
    refused(dict_of("w", tensor(0, {2}, {1}, "QUInt8Storage", 24)), "dtype quint8 is not read; save tensor.int_repr()");
    const auto with_dtype = [](const std::string& dtype) { // _rebuild_tensor_v3 over an untyped storage
        return "ctorch._utils\n_rebuild_tensor_v3\n((" + text("storage") + "ctorch.storage\nUntypedStorage\n" +
               text("0") + text("cpu") + number(24) + "tQ" + number(0) + tuple({2}) + tuple({1}) + "\x89}ctorch\n" +
               dtype + "\ntR";
    };
    refused(dict_of("w", with_dtype("uint4")), "tensor 'w': dtype uint4 is not read; save it as int8 or uint8");
    refused(dict_of("w", with_dtype("complex128")), "dtype complex128 is not read; save torch.view_as_real of it");
    refused(dict_of("w", "ctorch._utils\n_rebuild_qtensor\n)R"),
            none + ": 'w': is a quantized tensor; save tensor.int_repr() or tensor.dequantize()");
    refused("ctorch._utils\n_rebuild_qtensor\n)R", ": 'a': is a quantized tensor; save tensor.int_repr()");
    refused(dict_of("w", tensor(0, {2}, {1}, "OddStorage", 6)), "dtype odd is not read; save it as float32");
    refused(dict_of("w", "ctorch._utils\n_rebuild_sparse_tensor\n)R"), "is a sparse tensor; save tensor.to_dense()");
    // A whole model: its class, called without arguments, and its state.
    refused("c__main__\nNet\n)\x81}" + text("training") + "\x88sb",
            none + ", but an object of __main__.Net, whose code is not run; save its state_dict()");
    refused("}", none + "; save a dict of tensors");
    refused("(" + text("a") + "cx\ny\n)R" + text("b") + "cx\nz\n)Rd", "opcode 100");
    refused("}(" + text("a") + "cx\ny\n)R" + text("b") + "cx\nz\n)Ru", "'a': x.y is not read; 1 more like it");
}

TEST_CASE("what a pickle would have Python call is named, not called") {
    const Scratch scratch;
    const std::string call = "cos\nsystem\n(" + text("touch " + (scratch / "owned").string()) + "tR";
    CHECK(error_of(pt_of(scratch / "a.pt", pickled(call))).find("an object of os.system") != std::string::npos);
    const auto file = open_tensor_file(
        pt_of(scratch / "b.pt", pickled("}(" + text("evil") + call + text("w") + tensor(0, {6}, {1}) + "u")));
    REQUIRE(file->notes().size() == 1);
    CHECK(file->notes()[0] == "'evil': os.system is not read; skipped");
    CHECK(file->tensors().size() == 1);
    CHECK(!fs::exists(scratch / "owned"));
}

TEST_CASE("pickles that are broken or want the reader's memory and time are refused") {
    check_refused("", "truncated");
    check_refused("\x80\x02", "truncated");
    check_refused("\x80\x06.", "unknown pickle protocol");
    check_refused(pickled("0"), "not there");
    check_refused(pickled(")(0"), "not there"); // pops beyond the mark
    check_refused(pickled("t"), "a mark that is not there");
    check_refused(pickled("h\x05"), "recalls a value that it did not store");
    check_refused(pickled("X\xff\xff\xff\xff"), "truncated");
    check_refused(pickled("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), "truncated");
    check_refused(pickled("ctorch"), "truncated");
    check_refused(pickled("}Ns"), "not there");
    check_refused(pickled("NNNs"), "expected a dict");
    check_refused(pickled("}(Nu"), "lacks its value");
    check_refused(pickled("NNR"), "expected a tuple of arguments");
    check_refused(pickled("N)R"), "expected a function");
    check_refused(pickled("NQ"), "a storage's id");
    check_refused(pickled("ctorch._utils\n_rebuild_tensor_v2\n)R"), "lacks arguments");
    check_refused(pickled("i"), "opcode 105 is not read");
    check_refused(pickled("]q\x01h\x01"
                          "a"),
                  "nest too deep");                                              // a list that contains itself
    check_refused(pickled(")" + std::string(900'000, '\x85')), "nest too deep"); // ((((...))))
    check_refused(pickled(std::string(1'100'000, 'N')), "more than a million values");
    check_refused(pickled(std::string(1'100'000, '(')), "more than a million values");
    check_refused(pickled("N" + std::string(1'100'000, '\x94')), "more than a million values");
    check_refused(pickled("c" + std::string(1'001, 'm') + "\nn\n"), "more than 1000 bytes");
    std::string doubling = "]"; // 2^60 leaves through 60 lists
    for (char level = 1; level < 60; ++level) doubling += std::string("q") + level + "0](h" + level + "h" + level + "e";
    check_refused(pickled(doubling), "too often");
    std::string long_names = "}q\x01" + text(std::string(100'000, 'k')) + "q\x02"; // one long name, used repeatedly
    for (int i = 0; i < 1000; ++i)
        long_names += "0}h\x02N"
                      "sq\x03"
                      "0h\x01" +
                      number(i) + "h\x03s" + "h\x02";
    check_refused(pickled(long_names + "0"), "too often");
}

TEST_CASE("the recorded pt files of PyTorch 1.13 hold the tensors of the safetensors files of the same step" *
          doctest::test_suite("real_recordings")) {
    check_recordings(".pt");
}
