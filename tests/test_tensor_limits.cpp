// Tools on tensor files that claim to be larger than they are, or that are not files: memory grows with what is read
// (each tool runs under a limit on its address space), nothing waits for ever, and one line says what is wrong.
#include "tool.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zip.h>

#include <sys/stat.h>

using namespace amp;
using namespace amp::test;

namespace {

/// Runs a tool with so many MiB of address space, on one thread (every thread takes some for its stack and heap), and
/// for at most so many seconds (exit code 124).
Outcome limited(const std::string& command, int mebibytes, int seconds = 60) {
    return run_command(fmt::format("ulimit -v {}; timeout {} {} --threads 1", mebibytes * 1024, seconds, command));
}

void check_error(const Outcome& o, std::initializer_list<std::string_view> parts) {
    CAPTURE(o.err);
    CHECK(o.code == 1);
    CHECK(lines_of(o.err).size() == 1);
    for (const std::string_view part : parts) CHECK(contains(o.err, part));
    for (const std::string_view never : {"bad_alloc", "basic_filebuf", "std::"}) CHECK(!contains(o.err, never));
}

std::string safetensors(const std::string& header, std::string_view data) {
    return little_endian(header.size(), 8) + header + std::string(data);
}

/// A sparse file of any size, or an empty path if the disk does not support sparse files.
fs::path sparse(const fs::path& path, std::uint64_t size) {
    write_file(path, "");
    std::error_code failed;
    fs::resize_file(path, size, failed);
    return failed ? fs::path() : path;
}

std::string text(std::string_view s) { return "X" + little_endian(s.size(), 4) + std::string(s); }
std::string number(std::uint64_t n) { return "\x8a\x08" + little_endian(n, 8); }

/// torch.save's archive with one view of a stored storage of `size` zeros, as a sparse file.
fs::path sparse_pt(const fs::path& path, std::uint64_t size, std::uint64_t count, std::uint64_t stride) {
    const std::string pickle = "\x80\x02}" + text("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") +
                               "ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(size / 4) + "tQ" +
                               number(0) + "(" + number(count) + "t(" + number(stride) + "t\x89}tRs.";
    struct Member {
        std::string name;
        std::uint64_t size, at = 0;
        std::uint32_t crc;
    };
    const auto facts = [](const Member& m) { // no flags, stored, no time, checksum, sizes, name
        return std::string(6, '\0').replace(0, 2, little_endian(20, 2)) + std::string(4, '\0') +
               little_endian(m.crc, 4) + little_endian(m.size, 4) + little_endian(m.size, 4) +
               little_endian(m.name.size(), 2);
    };
    // The CRC-32 of the pickle, by definition; that of the zeros is not checked, as the view ends before they do.
    std::uint32_t crc = ~0U;
    for (const char c : pickle) {
        crc ^= static_cast<unsigned char>(c);
        for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    Member members[] = {{"t/data.pkl", pickle.size(), 0, ~crc}, {"t/data/0", size, 0, 0}};
    std::ofstream out(path, std::ios::binary);
    std::string directory;
    for (Member& m : members) {
        m.at = static_cast<std::uint64_t>(out.tellp());
        out << "PK\x03\x04" << facts(m) << std::string(2, '\0') << m.name;
        if (m.name == "t/data.pkl") out << pickle;
        else out.seekp(static_cast<std::streamoff>(size), std::ios::cur);
        directory +=
            "PK\x01\x02" + little_endian(20, 2) + facts(m) + std::string(12, '\0') + little_endian(m.at, 4) + m.name;
    }
    const auto begin = static_cast<std::uint64_t>(out.tellp());
    out << directory << "PK\x05\x06" << std::string(4, '\0') << little_endian(2, 2) << little_endian(2, 2)
        << little_endian(directory.size(), 4) << little_endian(begin, 4) << std::string(2, '\0');
    return path;
}

} // namespace

TEST_CASE("a header of a million tensors is refused, and one of long lists") {
    const Scratch scratch;
    std::string header = "{";
    header.reserve(100'000'000);
    for (int i = 0; i < 1'400'000; ++i)
        fmt::format_to(std::back_inserter(header), R"({}"t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                       i == 0 ? "" : ",", i, i, i + 1);
    const std::string file = (scratch / "a.safetensors").string();
    write_file(file, safetensors(header + "}", std::string(1'400'000, '\0')));
    check_error(limited(AMP_HISTOGRAM " " + file, 400), {"a.safetensors", "more than 200,000 tensors"});
    header = R"({"w":{"dtype":"U8","shape":[1)";
    for (int i = 0; i < 20'000'000; ++i) header += ",1";
    write_file(file, safetensors(header + R"(],"data_offsets":[0,1]}})", "0"));
    check_error(limited(AMP_HISTOGRAM " " + file, 400), {"tensor 'w'", "more than 64 dimensions"});
    write_file(file, safetensors(R"({")" + std::string(10'000'000, 'n') +
                                     R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                 "0"));
    check_error(limited(AMP_HISTOGRAM " " + file, 400), {"a tensor's name of more than 1000 bytes"});
}

TEST_CASE("terabytes of zeros are read in the memory of a part" * doctest::test_suite("sparse_files")) {
    const Scratch scratch;
    const fs::path file = sparse(scratch / "a.bin", std::uint64_t{2} << 40);
    if (file.empty()) {
        skip("no sparse file of 2 TiB here (TMPDIR names a folder of a file system that takes them, such as ext4 or "
             "xfs)");
        return;
    }
    for (const std::string& tool :
         {AMP_HISTOGRAM " " + file.string() + " --error", AMP_DIFF " " + file.string() + " " + file.string()}) {
        const Outcome o = limited(tool + " --dtype U8", 300, 2);
        CAPTURE(tool);
        CAPTURE(o.err);
        CHECK(o.code == 124); // still at work at the time limit; it once ran out of memory here
    }
}

TEST_CASE("a strided view of a gibibyte is read in parts") {
    const Scratch scratch;
    const std::uint64_t size = std::uint64_t{1} << 30, stride = 64, count = size / 4 / stride;
    const fs::path file = sparse_pt(scratch / "a.pt", size, count, stride);
    const Outcome o = limited(AMP_HISTOGRAM " " + file.string() + " --json -", 300);
    CAPTURE(o.err);
    REQUIRE(o.code == 0);
    CHECK(nlohmann::json::parse(o.out)["total"]["zero"] == count);
}

TEST_CASE("reports of thousands of tensors take little memory for each") {
    const Scratch scratch;
    // Sanitizers allow no limit on memory, and take two minutes for 1,500 tensors; a few suffice for what they can
    // find.
    constexpr std::size_t tensors = memory_is_limited ? 1500 : 60, elements = 250;
    std::string header = "{", data;
    for (std::size_t t = 0; t < tensors; ++t)
        header += fmt::format(R"({}"t{}": {{"dtype": "F32", "shape": [{}], "data_offsets": [{}, {}]}})",
                              t == 0 ? "" : ",", t, elements, t * elements * 4, (t + 1) * elements * 4);
    for (std::size_t i = 0; i < tensors * elements; ++i) // a number of every binade
        data += little_endian(std::uint32_t{static_cast<std::uint32_t>(1 + i % elements) << 23}, 4);
    const fs::path file = write_file(scratch / "t.safetensors", safetensors(header + "}", data));
    for (const std::string& tool :
         {std::string(AMP_ADAM " "), AMP_REPORT " --html " + (scratch / "r.html").string() + " "}) {
        const Outcome o = limited(tool + file.string(), 120);
        CAPTURE(tool);
        CAPTURE(o.err);
        CHECK(o.code == 0);
    }
    const fs::path json = scratch / "a.json"; // 110 MB of 1,500, which are never in memory at once
    const Outcome o = limited(AMP_ADAM " " + file.string() + " --json " + json.string(), 250);
    CAPTURE(o.err);
    CHECK(o.code == 0);
    CHECK(fs::file_size(json) > 70'000 * tensors);
}

TEST_CASE("what is no file is told at once") {
    const Scratch scratch;
    for (const char* name : {"p.safetensors", "p.npy", "p.npz", "p.pt"}) {
        const std::string pipe = (scratch / name).string();
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        for (const std::string& tool : {AMP_HISTOGRAM " " + pipe, AMP_TRAIN " --model mlp --data " + pipe})
            check_error(limited(tool, 4000, 20), {name, "a pipe, not a regular file"});
    }
    check_error(limited(AMP_HISTOGRAM " /dev/zero --dtype F32", 4000, 20), {"/dev/zero: a device, not a regular file"});
    const fs::path link = scratch / "link.npy";
    fs::create_symlink("gone/x.npy", link);
    check_error(limited(AMP_HISTOGRAM " " + link.string(), 4000, 20),
                {"link.npy: ", "a link to gone/x.npy, which does not exist"});
    check_error(limited(AMP_TRAIN " --model mlp --data " + scratch.folder().string(), 4000, 20),
                {"a folder, not a regular file"});
}

TEST_CASE("data without features or examples") {
    const Scratch scratch;
    const auto train = [&](const std::string& x_shape, std::size_t numbers) {
        const auto npy = [](const std::string& shape, std::size_t n) {
            const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n";
            return std::string("\x93NUMPY\x01\x00", 8) + little_endian(header.size(), 2) + header +
                   std::string(n * 4, '\0');
        };
        const std::string x = npy(x_shape, numbers), y = npy("(10,)", 10), path = (scratch / "d.npz").string();
        zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
        REQUIRE(archive != nullptr);
        REQUIRE(zip_file_add(archive, "x.npy", zip_source_buffer(archive, x.data(), x.size(), 0), 0) == 0);
        REQUIRE(zip_file_add(archive, "y.npy", zip_source_buffer(archive, y.data(), y.size(), 0), 0) == 1);
        REQUIRE(zip_close(archive) == 0);
        return limited(AMP_TRAIN " --steps 2 --model mlp --data " + path, 4000, 20);
    };
    check_error(train("(10, 0)", 0), {"d.npz: x has shape (10, 0), y (10,): an example without numbers"});
    check_error(train("(0, 4)", 0), {"five or more"});
    check_error(train("()", 1), {"x has shape ()"});
    CHECK(train("(10,)", 10).code == 0); // one feature, one class
}
