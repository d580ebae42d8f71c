//! libibverbs, loaded when it is first asked for: one binary starts everywhere, with the library or without.
//!
//! The library is loaded once and stays, since devices hold on to it; where it is missing, each call looks for it anew, so
//! that it may be installed later. Its own errors are negative numbers, null pointers or numbers of errno, each as its
//! manual says; they become [`std::io::Error`] here.
//!
//! Failure case: a library without one of the symbols below, which is one of before 2020. It counts as missing, and
//! the error names the symbol.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::abi::{
    CompletionChannel, CompletionQueue, Context, Device, DeviceAttributes, GidEntry, MemoryRegion,
    PortAttributes, ProtectionDomain, QueuePair, QueuePairAttributes, QueuePairInit,
};
use crate::region::RegionError;

/// Its name, which has been the same since 2005.
const NAME: &CStr = c"libibverbs.so.1";

macro_rules! symbols {
    ($($field:ident $symbol:literal: $signature:ty;)*) => {
        /// Its functions.
        pub(super) struct Library {
            $( pub(super) $field: $signature, )*
        }

        impl Library {
            fn load() -> Result<Self, String> {
                let handle = open()?;
                Ok(Self {
                    $(
                        // SAFETY: the symbol has this signature in every version of the library (`abi`), and the
                        // library is never unloaded.
                        $field: unsafe {
                            std::mem::transmute::<*mut c_void, $signature>(symbol(handle, $symbol)?)
                        },
                    )*
                })
            }
        }
    };
}

symbols! {
    device_list c"ibv_get_device_list": unsafe extern "C" fn(*mut c_int) -> *mut *mut Device;
    free_device_list c"ibv_free_device_list": unsafe extern "C" fn(*mut *mut Device);
    device_name c"ibv_get_device_name": unsafe extern "C" fn(*mut Device) -> *const c_char;
    open_device c"ibv_open_device": unsafe extern "C" fn(*mut Device) -> *mut Context;
    close_device c"ibv_close_device": unsafe extern "C" fn(*mut Context) -> c_int;
    query_device c"ibv_query_device":
        unsafe extern "C" fn(*mut Context, *mut DeviceAttributes) -> c_int;
    query_port c"ibv_query_port": unsafe extern "C" fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    query_gids c"_ibv_query_gid_table":
        unsafe extern "C" fn(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
    allocate_domain c"ibv_alloc_pd": unsafe extern "C" fn(*mut Context) -> *mut ProtectionDomain;
    free_domain c"ibv_dealloc_pd": unsafe extern "C" fn(*mut ProtectionDomain) -> c_int;
    register c"ibv_reg_mr":
        unsafe extern "C" fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    deregister c"ibv_dereg_mr": unsafe extern "C" fn(*mut MemoryRegion) -> c_int;
    create_channel c"ibv_create_comp_channel":
        unsafe extern "C" fn(*mut Context) -> *mut CompletionChannel;
    destroy_channel c"ibv_destroy_comp_channel": unsafe extern "C" fn(*mut CompletionChannel) -> c_int;
    create_completions c"ibv_create_cq": unsafe extern "C" fn(
        *mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int,
    ) -> *mut CompletionQueue;
    destroy_completions c"ibv_destroy_cq": unsafe extern "C" fn(*mut CompletionQueue) -> c_int;
    event c"ibv_get_cq_event": unsafe extern "C" fn(
        *mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void,
    ) -> c_int;
    acknowledge c"ibv_ack_cq_events": unsafe extern "C" fn(*mut CompletionQueue, u32);
    create_queue_pair c"ibv_create_qp":
        unsafe extern "C" fn(*mut ProtectionDomain, *mut QueuePairInit) -> *mut QueuePair;
    destroy_queue_pair c"ibv_destroy_qp": unsafe extern "C" fn(*mut QueuePair) -> c_int;
    modify_queue_pair c"ibv_modify_qp":
        unsafe extern "C" fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
}

/// The library, or why there is none.
pub(super) fn library() -> Result<&'static Library, RegionError> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let loaded = Library::load().map_err(RegionError::NoDevice)?;
    // Another thread may have loaded it meanwhile: it is the same one then.
    Ok(LIBRARY.get_or_init(|| loaded))
}

/// The system refused `what`; why is what it said last.
pub(super) fn last(what: &'static str) -> RegionError {
    RegionError::io(what)(std::io::Error::last_os_error())
}

fn open() -> Result<*mut c_void, String> {
    // SAFETY: a name that ends with zero. Loading runs the library's own start-up code, which only allocates.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    match handle.is_null() {
        true => Err(format!("{} (package libibverbs1)", fault())),
        false => Ok(handle),
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: a handle that `open` gave, and a name that ends with zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    match found.is_null() {
        true => Err(fault()),
        false => Ok(found),
    }
}

/// What the loader says of its last failure.
fn fault() -> String {
    // SAFETY: the text belongs to this thread until its next call of the loader, and is copied at once.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the library cannot be loaded".to_owned();
    }
    // SAFETY: not null, and it ends with zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
