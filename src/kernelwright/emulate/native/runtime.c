/* The device's standing state: the presented properties, the installed callbacks, the sticky error.
 *
 * Why: the CUDA runtime shim exists once in each extension, so what must exist once in a process lives here.
 */
#include "runtime_warp.h"

static kw_callbacks callbacks;
static kw_device_properties device;
static atomic_int sticky;

KW_API void kw_set_callbacks(const kw_callbacks *given) { callbacks = *given; }
KW_API const kw_callbacks *kw_get_callbacks(void) { return &callbacks; }
KW_API void kw_set_device(const kw_device_properties *given) { device = *given; }
KW_API const kw_device_properties *kw_get_device(void) { return &device; }
KW_API void kw_set_sticky_error(int error) { sticky = error; }
KW_API int kw_sticky_error(void) { return sticky; }
