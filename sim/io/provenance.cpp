#include <ampscope/sim/io/provenance.h>

#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/folder.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/tensor_file.h>

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

namespace amp {

namespace {

/// Adds up bytes to their SHA-256; whether that worked is known at the end.
class Sha256 {
  public:
    Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
        good_ = EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
    }
    void add(std::span<const std::byte> bytes) {
        good_ = good_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
    }
    /// In hex; empty if it cannot be computed.
    std::string hex() {
        std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
        unsigned int length = 0;
        std::string text;
        if (!good_ || EVP_DigestFinal_ex(context_.get(), digest.data(), &length) != 1) return text;
        for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
        return text;
    }

  private:
    std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
    bool good_ = false;
};

} // namespace

std::string sha256_of(std::string_view text) {
    Sha256 sum;
    sum.add(std::as_bytes(std::span(text)));
    return sum.hex();
}

SourceFile hashed(const std::filesystem::path& file, const std::string& name) {
    constexpr std::size_t block = 1 << 20;
    const ByteFile in(file);
    Sha256 sum;
    std::vector<std::byte> buffer(block);
    SourceFile source{.name = name, .bytes = 0, .sha256 = {}};
    while (source.bytes < in.size()) {
        const auto part = std::span(buffer).first(std::min<std::uint64_t>(block, in.size() - source.bytes));
        in.read_at(source.bytes, part);
        sum.add(part);
        source.bytes += part.size();
    }
    source.sha256 = sum.hex();
    if (source.sha256.empty()) throw FileError(file, "cannot be hashed");
    return source;
}

std::vector<SourceFile> source_files(const std::set<std::filesystem::path>& paths) {
    namespace fs = std::filesystem;
    std::vector<SourceFile> files;
    std::error_code none;
    for (const fs::path& path : paths) {
        if (fs::is_regular_file(path, none)) files.push_back(hashed(path, path.string()));
        if (!fs::is_directory(path, none)) continue;
        const auto take = [&](const fs::path& below, bool is_folder) {
            const std::string name = below.filename();
            if (is_folder) return name != run_layout::checkpoints;
            const bool recorded = is_tensor_file(below) || std::ranges::count(run_layout::files, name) > 0;
            if (recorded && fs::is_regular_file(below, none)) files.push_back(hashed(below, below.string()));
            return false;
        };
        std::vector<std::string> unread; // whoever reads the folder has told of these
        walk_folder(path, take, unread);
    }
    return files;
}

} // namespace amp
