"""Which kernels are a library's, by the names that drivers give them, and which may be the candidate's."""

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
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false>(int)",
    "void cask__5x_cudnn::computeOffsetsKernel<false, false>(int)",
    "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const> > >(int)",
]
OWN = [
    "relu_kernel(float const*, float*, int)",
    "void linear::split_kernel<128, false, false>(float const*)",
    "triton_poi_fused_relu_0",
    "my_sm90_gemm(float const*)",
    "softmax_kernel(float const*, float*, int)",
    "gemv_kernel(float const*, float const*, float*, int, int)",
    "gemm_tiled(float const*)",
    "dot_kernel(float const*, float*)",
]


def test_libraries_are_told_from_what_may_be_the_candidates() -> None:
    assert own(LIBRARIES, ()) == ()
    assert own([*OWN, *LIBRARIES, *OWN], ()) == tuple(OWN)


@pytest.mark.parametrize(
    "name",
    [
        "gemv2T_kernel(float const*, float const*, float*, int)",
        "void (anonymous namespace)::row_sum<128, (bool)1>(float const*, float*)",
        "void cutlass::Kernel2<mine>(mine::Params)",
        "splitKreduce_kernel(float*)",
    ],
)
def test_what_the_candidate_built_is_its_own_whatever_it_is_called(name: str) -> None:
    assert own([name, *LIBRARIES[:2]], [name, "other(int)"])[0] == name


def test_a_library_s_instance_of_another_name_stays_the_library_s() -> None:
    built = ["relu_kernel(float const*, float*, int)"]
    assert own(LIBRARIES, built) == ()
