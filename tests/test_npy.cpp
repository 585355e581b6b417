// .npy files of NumPy and ml_dtypes, false headers, lost dtypes; and raw files.
#include "io_golden.h"

using namespace amp;
using namespace amp::test;

namespace {

std::string file_of(const std::string& dict, std::size_t data, int version = 1) {
    return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' +
           little_endian(dict.size(), version == 1 ? 2 : 4) + dict + std::string(data, 'x');
}

std::string array(const std::string& descr, const std::string& shape, std::size_t data) {
    return file_of("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n", data);
}

} // namespace

TEST_CASE("npy files of NumPy and ml_dtypes") { check_golden(".npy"); }

TEST_CASE("damaged npy files") { check_damage(".npy"); }

TEST_CASE("headers that NumPy would read") {
    MemoryFile memory(".npy");
    for (const std::string& bytes :
         {array("<f4", "(2,)", 8), array("|u1", "()", 1), array("=f4", "(1,)", 4), array("<f8", "(0, 5)", 0),
          file_of("{\"shape\": (2, 3,), \"fortran_order\": True, \"descr\": \"<f2\"}", 12, 2),
          file_of("{'descr':'<f2','fortran_order':False,'shape':(2,3)}   \n", 12, 3)})
        CHECK(error_of(memory.set(bytes)) == "");
}

TEST_CASE("headers that lie") {
    const std::vector<Lie> lies{
        {"", "not a .npy array"},
        {"\x93NUMPY", "not a .npy array"},
        {"\x94NUMPY" + array("<f4", "(2,)", 8).substr(6), "not a .npy array"},
        {file_of("{}", 0, 4), "version 4.0 is unknown"},
        {file_of("{}", 0, 0), "version 0.0 is unknown"},
        {std::string("\x93NUMPY\x01\x00\xff\xff{}", 12), "reaches beyond the file"},
        {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14), "a header of 4294967295 bytes"},
        {std::string("\x93NUMPY\x02\x00\x02\x00", 10), "header is truncated"},
        {file_of("", 0), "expected '{'"},
        {file_of("[]", 0), "expected '{'"},
        {file_of("{}", 0), "needs descr, fortran_order and shape"},
        {file_of("{'descr': '<f4', 'shape': (2,)}", 8), "needs descr, fortran_order and shape"},
        {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", 8), "unexpected key 'x'"},
        {file_of("{'descr': '<f4', 'descr': '<f2', 'fortran_order': False, 'shape': (2,)}", 8),
         "unexpected key 'descr'"},
        {file_of("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", 8), "must be True or False"},
        {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", 8), "expected '}'"},
        {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + exit()", 8), "something follows"},
        {file_of("{'descr': '<f4", 8), "a string does not end"},
        {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", 12), "expected ','"},
        {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': [2]}", 8), "expected '('"},
        {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2**3,)}", 8), "expected ','"},
        {array("<f4", "(-1,)", 4), "non-negative integers"},
        {array("<f4", "(1.5,)", 4), "expected ','"},
        {array("<f4", "(,)", 4), "non-negative integers"},
        {array("<f4", "(18446744073709551616,)", 4), "below 2^64"},
        {array("<f4", "(4611686018427387905,)", 4), "more elements than any file"},
        {array("<f4", "(4294967296, 4294967296)", 0), "more elements than any file"},
        {array("<f4", "(3,)", 8), "it is truncated"},
        {array("<f4", "(1000000000000,)", 8), "it is truncated"},
        {array("<f4", "(2,)", 9), "something is appended"},
        {array("f4", "(2,)", 8), "no byte order"},
        {array("", "(2,)", 8), "no byte order"},
        {array("<", "(2,)", 8), "not supported"},
        {array("<f16", "(1,)", 16), "not supported"},
        {array("<c16", "(1,)", 16), "(complex128) is not read; convert to complex64"},
        {array("<U4", "(1,)", 16), "not supported"},
        {array("|S4", "(1,)", 4), "not supported"},
        {array("<M8[ns]", "(1,)", 8), "not supported"},
        {array("|O", "(1,)", 8), "Python objects"},
        {array("<V2", "(1,)", 2), "say which with --as"},
        {array("|V1", "(1,)", 1), "say which with --as"},
        {array("<f1", "(1,)", 1), "say which with --as"},
        {read_file(golden("object.npy.bad")), "Python objects"},
        {read_file(golden("struct.npy.bad")), "structured dtypes"},
    };
    check_lies(".npy", lies);
}

TEST_CASE("a lost dtype is what the user says, if the size fits") {
    MemoryFile memory(".npy");
    const auto opened_as = [&](const std::string& descr, const char* as) {
        OpenOptions options;
        options.as = parse_dtype(as);
        const std::string item = descr.substr(2);
        return std::string(
            info(open_tensor_file(memory.set(array(descr, "(1,)", std::stoul(item))), options)->tensors()[0].dtype)
                .name);
    };
    CHECK(opened_as("<V2", "bf16") == "BF16");
    CHECK(opened_as("|V1", "e4m3") == "F8_E4M3");
    CHECK(opened_as("<f1", "e5m2") == "F8_E5M2");
    CHECK(opened_as("<u2", "fp16") == "F16");
    CHECK(opened_as("|u1", "e4m3fnuz") == "F8_E4M3FNUZ");
    CHECK(opened_as("<f4", "bf16") == "F32"); // not lost: nothing to reinterpret
    CHECK_THROWS_AS(opened_as("<V2", "e4m3"), FileError);
    CHECK_THROWS_AS(opened_as("|V1", "bf16"), FileError);
    CHECK_THROWS_AS(opened_as("|V1", "F4"), FileError);
}

TEST_CASE("raw files are what the user says, or refused") {
    MemoryFile memory(".bin");
    const fs::path& path = memory.set("123456789012");
    const auto with = [](DType dtype, std::vector<std::uint64_t> shape) {
        return OpenOptions{.as = {}, .dtype = dtype, .shape = std::move(shape)};
    };
    CHECK(error_of(path).ends_with("unknown kind of file; name it .safetensors, .npy, .npz or .pt"));
    CHECK(open_tensor_file(path, with(DType::f32, {}))->tensors()[0].shape == std::vector<std::uint64_t>{3});
    CHECK(open_tensor_file(path, with(DType::f4, {}))->tensors()[0].shape == std::vector<std::uint64_t>{24});
    CHECK(open_tensor_file(path, with(DType::f6_e2m3, {}))->tensors()[0].shape == std::vector<std::uint64_t>{16});
    CHECK(tensor_bytes(*open_tensor_file(path, with(DType::bf16, {2, 3})), 0) == "123456789012");
    CHECK(error_of(path, with(DType::f64, {})).find("12 bytes: not a whole number of F64 elements") !=
          std::string::npos);
    CHECK(error_of(path, with(DType::f32, {4})).find("the shape takes 16 bytes") != std::string::npos);
    CHECK(error_of(path, with(DType::f32, {~std::uint64_t{0}, 2})).find("more elements than any file") !=
          std::string::npos);
}

TEST_CASE("what is no file is refused without waiting") {
    const Scratch scratch;
    CHECK(error_of(scratch / "missing.npy").find("cannot open") != std::string::npos);
    CHECK(error_of(scratch.folder()).find("not a regular file") != std::string::npos);
    for (const char* name : {"pipe.npy", "pipe.npz", "pipe.pt", "pipe.safetensors"}) {
        REQUIRE(::mkfifo((scratch / name).c_str(), 0600) == 0);
        CHECK(error_of(scratch / name).find("not a regular file") != std::string::npos);
    }
}
