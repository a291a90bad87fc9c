// Whether a launch is allowed, and how many blocks fit: the arithmetic of the device's limits.
//
// The errors are those of CUDA 13.0 (H200, driver 580, 2026-11): cudaErrorInvalidValue for grids, blocks and shared memory,
// where runtimes up to 12 said cudaErrorInvalidConfiguration for the first two.
// Sources: CUDA C++ Programming Guide, "Compute Capabilities" (limits); cuda_occupancy.h of the toolkit (granularities:
// registers are handed to a warp in units of 256, warps in units of 4, shared memory in units of 128 bytes).
#include "cudart_state.h"

#include <algorithm>
#include <sstream>

namespace kw {
namespace {

constexpr uint64_t kRegisterUnit = 256;  // registers a warp gets at a time
constexpr uint64_t kWarpUnit = 4;        // warps of a block count in fours against the register file
constexpr uint64_t kSharedUnit = 128;    // bytes

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream made;
  (made << ... << parts);
  return made.str();
}

std::string shape(const kw_dim3& d) { return text(d.x, " x ", d.y, " x ", d.z); }

Refusal check_dimensions(const kw_launch& launch, const Kernel* kernel, const kw_device_properties& device) {
  const uint32_t grid[3] = {launch.grid.x, launch.grid.y, launch.grid.z};
  const uint32_t block[3] = {launch.block.x, launch.block.y, launch.block.z};
  static const char axis[] = "xyz";
  for (int i = 0; i < 3; i++) {
    if (grid[i] == 0)
      return {cudaErrorInvalidValue, "launch.grid-limit",
              text("grid of ", shape(launch.grid), " blocks: dimension ", axis[i], " is zero")};
    if (uint64_t(grid[i]) > uint64_t(device.max_grid[i]))
      return {cudaErrorInvalidValue, "launch.grid-limit",
              text("grid of ", shape(launch.grid), " blocks: dimension ", axis[i], " is ", grid[i], "; the device allows ",
                   device.max_grid[i])};
    if (block[i] == 0)
      return {cudaErrorInvalidValue, "launch.block-limit",
              text("block of ", shape(launch.block), " threads: dimension ", axis[i], " is zero")};
  }
  uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
  if (threads > uint64_t(device.max_threads_per_block))
    return {cudaErrorInvalidValue, "launch.block-limit",
            text("block of ", shape(launch.block), " = ", threads, " threads; the device allows ", device.max_threads_per_block)};
  for (int i = 0; i < 3; i++)
    if (uint64_t(block[i]) > uint64_t(device.max_block[i]))
      return {cudaErrorInvalidValue, "launch.block-limit",
              text("block of ", shape(launch.block), " threads: dimension ", axis[i], " is ", block[i], "; the device allows ",
                   device.max_block[i])};
  uint64_t allowed = uint64_t(kernel->attributes[4]);
  if (allowed && threads > allowed)
    return {cudaErrorInvalidValue, "launch.block-limit",
            text("block of ", shape(launch.block), " = ", threads, " threads; the kernel was compiled for at most ", allowed,
                 " (__launch_bounds__)")};
  return {};
}

Refusal check_shared(const kw_launch& launch, const Kernel* kernel, const kw_device_properties& device) {
  uint64_t fixed = uint64_t(kernel->attributes[1]), dynamic = launch.dynamic_shared;
  bool opted = kernel->dynamic_shared_opt_in >= 0;  // below the default it lowers the limit
  uint64_t limit = opted ? uint64_t(kernel->dynamic_shared_opt_in) + fixed : device.shared_per_block;
  if (fixed + dynamic <= limit) return {};
  std::string sentence = text("the launch asks for ", dynamic, " bytes of dynamic and ", fixed, " bytes of static shared memory = ",
                              fixed + dynamic, " bytes a block; the limit is ", limit);
  if (fixed + dynamic > device.shared_per_block_optin)
    sentence += text(", and the device has at most ", device.shared_per_block_optin, " with opt-in");
  else
    sentence += text(", unless cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ", dynamic,
                     ") is called first (the device has ", device.shared_per_block_optin, ")");
  return {cudaErrorInvalidValue, "launch.shared-memory", std::move(sentence)};
}

Refusal check_registers(const kw_launch& launch, const Kernel* kernel, const kw_device_properties& device) {
  uint64_t registers = uint64_t(kernel->attributes[0]);
  uint64_t threads = uint64_t(launch.block.x) * launch.block.y * launch.block.z;
  uint64_t warps = round_up((threads + 31) / 32, kWarpUnit);
  uint64_t wanted = round_up(registers * 32, kRegisterUnit) * warps;
  if (wanted <= uint64_t(device.registers_per_block)) return {};
  return {cudaErrorLaunchOutOfResources, "launch.registers",
          text(threads, " threads of ", registers, " registers take ", wanted, " registers; a block may have ",
               device.registers_per_block)};
}

Refusal check_cooperative(const kw_launch& launch, const Kernel* kernel, const kw_device_properties& device) {
  if (!launch.cooperative) return {};
  int threads = int(launch.block.x * launch.block.y * launch.block.z);
  int fit = blocks_per_multiprocessor(device, kernel->attributes[0], uint64_t(kernel->attributes[1]), threads,
                                      launch.dynamic_shared);
  uint64_t blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  uint64_t most = uint64_t(fit) * uint64_t(device.multiprocessors);
  if (blocks <= most) return {};
  return {cudaErrorCooperativeLaunchTooLarge, "launch.grid-limit",
          text("a cooperative grid of ", blocks, " blocks; ", fit, " fit on each of ", device.multiprocessors,
               " multiprocessors, so at most ", most, " are resident at once")};
}

}  // namespace

Refusal check_launch(const kw_launch& launch, Kernel* kernel, const kw_device_properties& device) {
  using Check = Refusal (*)(const kw_launch&, const Kernel*, const kw_device_properties&);
  static constexpr Check checks[] = {check_dimensions, check_shared, check_registers, check_cooperative};
  for (Check check : checks) {
    Refusal refusal = check(launch, kernel, device);
    if (refusal.error != cudaSuccess) return refusal;
  }
  return {};
}

int blocks_per_multiprocessor(const kw_device_properties& device, int registers, uint64_t static_shared, int threads,
                              uint64_t dynamic_shared) {
  if (threads <= 0 || threads > device.max_threads_per_block) return 0;
  uint64_t warps = (uint64_t(threads) + 31) / 32;
  uint64_t by_blocks = uint64_t(device.max_blocks_per_sm);
  uint64_t by_warps = uint64_t(device.max_threads_per_sm) / 32 / warps;
  uint64_t by_registers = by_blocks;
  if (registers > 0) {
    // A multiprocessor's file is split over four schedulers, so what counts is how many warps each can hold.
    uint64_t per_warp = round_up(uint64_t(registers) * 32, kRegisterUnit);
    uint64_t warps_held = uint64_t(device.registers_per_sm) / kWarpUnit / per_warp * kWarpUnit;
    by_registers = warps_held / warps;
  }
  uint64_t shared = round_up(static_shared + dynamic_shared + device.reserved_shared_per_block, kSharedUnit);
  uint64_t by_shared = shared ? device.shared_per_sm / shared : by_blocks;
  return int(std::min({by_blocks, by_warps, by_registers, by_shared}));
}

}  // namespace kw
