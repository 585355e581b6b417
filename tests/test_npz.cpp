// .npz files of NumPy, damaged archives, and archives with false claims.
#include "io_golden.h"

#include <zip.h>

using namespace amp;
using namespace amp::test;

namespace {

/// A .npz file with one member.
fs::path npz_of(const fs::path& path, const std::string& member, std::string_view bytes,
                zip_int32_t method = ZIP_CM_DEFLATE) {
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    REQUIRE(archive != nullptr);
    zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const zip_int64_t index = zip_file_add(archive, member.c_str(), source, 0);
    REQUIRE(index == 0);
    zip_set_file_compression(archive, 0, method, 9);
    REQUIRE(zip_close(archive) == 0);
    return path;
}

std::string npy_of(const std::string& shape, std::size_t data) {
    const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': " + shape + ", }\n";
    return std::string("\x93NUMPY\x01\x00", 8) + little_endian(header.size(), 2) + header + std::string(data, '\1');
}

} // namespace

TEST_CASE("npz files of NumPy: stored, deflated, zip64, data descriptors") { check_golden(".npz"); }

TEST_CASE("damaged npz files") { check_damage(".npz"); }

TEST_CASE("several streams of one archive do not disturb each other") {
    const auto file = open_tensor_file(golden("deflated.npz"));
    std::vector<std::string> alone;
    for (std::size_t i = 0; i < file->tensors().size(); ++i) alone.push_back(tensor_bytes(*file, i));
    const auto first = file->stream(0), second = file->stream(0);
    std::string a(48, '\0'), b(24, '\0');
    CHECK(first->read(std::as_writable_bytes(std::span(a)).first(24)) == 24);
    CHECK(second->read(std::as_writable_bytes(std::span(b))) == 24);
    CHECK(first->read(std::as_writable_bytes(std::span(a)).subspan(24)) == 24);
    CHECK(a == alone[0]);
    CHECK(b == alone[0].substr(0, 24));
}

TEST_CASE("a member that lies about its array is refused") {
    const Scratch scratch;
    for (const zip_int32_t method : {ZIP_CM_STORE, ZIP_CM_DEFLATE}) {
        CHECK(error_of(npz_of(scratch / "good.npz", "a.npy", npy_of("(4,)", 4), method)).empty());
        CHECK(error_of(npz_of(scratch / "short.npz", "a.npy", npy_of("(5,)", 4), method))
                  .find("member 'a.npy': shape and dtype take 5 bytes but the member has 4") != std::string::npos);
        CHECK(error_of(npz_of(scratch / "long.npz", "a.npy", npy_of("(3,)", 4), method)).find("take 3 bytes") !=
              std::string::npos);
        CHECK(error_of(npz_of(scratch / "huge.npz", "a.npy", npy_of("(1000000000000,)", 4), method))
                  .find("take 1000000000000 bytes") != std::string::npos);
        CHECK(error_of(npz_of(scratch / "wrap.npz", "a.npy", npy_of("(4294967296, 4294967296, 4)", 4), method))
                  .find("more elements than any file") != std::string::npos);
        CHECK(error_of(npz_of(scratch / "none.npz", "a.txt", "text", method)).find("no .npy array") !=
              std::string::npos);
        CHECK(error_of(npz_of(scratch / "empty.npz", "a.npy", "", method)).find("not a .npy array") !=
              std::string::npos);
    }
}

TEST_CASE("a member whose archive claims another length or checksum is refused") {
    const Scratch scratch;
    const std::string data = npy_of("(4000,)", 4000);
    const std::string bytes = read_file(npz_of(scratch / "a.npz", "a.npy", data));
    const std::size_t entry = bytes.find("PK\x01\x02"); // central directory: CRC at 16, size at 24
    REQUIRE(entry != std::string::npos);
    std::string crc = bytes, longer = bytes;
    crc[entry + 16] = static_cast<char>(crc[entry + 16] ^ 1);
    CHECK(error_of(write_file(scratch / "crc.npz", crc)).find("CRC") != std::string::npos);
    longer.replace(entry + 24, 4, little_endian(0xffffff00, 4)); // claims 4 GB that are not there
    std::string array = npy_of("(4000,)", 0);
    CHECK(error_of(write_file(scratch / "longer.npz", longer)).find("claims 4294967040 bytes, more than its") !=
          std::string::npos);
}

TEST_CASE("a zip bomb is read in bounded memory") {
    const Scratch scratch;
    const std::size_t size = std::size_t{1} << 28;
    const fs::path path = npz_of(scratch / "bomb.npz", "a.npy", npy_of("(268435456,)", size));
    REQUIRE(fs::file_size(path) < size / 500);
    const auto peak = [] { // kB
        std::ifstream status("/proc/self/status");
        for (std::string line; std::getline(status, line);)
            if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
        return 0l;
    };
    const long before = peak();
    const auto file = open_tensor_file(path);
    const auto stream = file->stream(0);
    std::vector<std::byte> chunk(1 << 16);
    std::uint64_t total = 0;
    long most = 0;
    for (std::size_t n = chunk.size(); n == chunk.size();) {
        n = stream->read(chunk);
        total += n;
        if (total % (1 << 24) == 0) most = std::max(most, peak());
    }
    CHECK(total == size);
    CHECK(before > 0);
    CHECK(most - before < 8 * 1024);
}

TEST_CASE("two members of one name are refused") {
    const Scratch scratch;
    std::string bytes = read_file(golden("stored.npz"));
    for (std::size_t at = 0; (at = bytes.find("w.grad.npy", at)) != std::string::npos;)
        bytes.replace(at, 10, "twins__npy");
    for (std::size_t at = 0; (at = bytes.find("nested/name.npy", at)) != std::string::npos;)
        bytes.replace(at, 15, "nested/name_npy");
    CHECK(open_tensor_file(write_file(scratch / "fewer.npz", bytes))->tensors().size() == 1);
    for (std::size_t at = 0; (at = bytes.find("twins__npy", at)) != std::string::npos;)
        bytes.replace(at, 10, "b.npy\0\0\0\0\0");
    CHECK(!error_of(write_file(scratch / "twins.npz", bytes)).empty());
}

TEST_CASE("the recorded npz files hold the tensors of the safetensors files of the same step" *
          doctest::test_suite("real_recordings")) {
    check_recordings(".npz");
}
