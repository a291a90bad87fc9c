"""Which kernels are a library's, by the names that an H200's driver gives them (torch 2.11)."""

from __future__ import annotations

import pytest

from kernelwright.judge.launched import own

pytestmark = pytest.mark.tiny

LIBRARIES = [
    "Memcpy DtoD (Device -> Device)",
    "Memset (Device)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*)",
    "void cub::CUB_300001_SM_900::DeviceReduceKernel<float>(float const*)",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(int)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(int)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(int)",
    "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true>(int)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3",
    "ampere_sgemm_128x64_tn",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN",
]
OWN = [
    "relu_kernel(float const*, float*, int)",
    "void linear::split_kernel<128, false, false>(float const*)",
    "triton_poi_fused_relu_0",
    "my_sm90_gemm(float const*)",
    "softmax_kernel(float const*, float*, int)",
]


def test_libraries_are_told_from_what_may_be_the_candidates() -> None:
    assert own(LIBRARIES) == ()
    assert own([*OWN, *LIBRARIES, *OWN]) == tuple(OWN)
