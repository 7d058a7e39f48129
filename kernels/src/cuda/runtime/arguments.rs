//! What host and device agree on: structs that are written down once, here as Rust, from which the device's text is
//! made.
//!
//! [`device_struct!`] declares a `#[repr(C)]` struct and derives its CUDA declaration with the offsets that Rust gave
//! it. A program brings the declarations of its structs along as `arguments.cuh`; there the device's compiler asserts
//! size and offsets again. A launch hands its kernel exactly one of them, so nothing is passed that has no name and no
//! type.

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};
use std::fmt::Write as _;
use std::marker::PhantomData;

/// The file by which sources include the structs of their program.
pub(in crate::cuda) const FILE: &str = "arguments.cuh";

/// A type that a field of a struct for the device may have.
///
/// # Safety
/// What [`Field::declaration`] declares has the same size, alignment and meaning of bits on the device.
pub(in crate::cuda) unsafe trait Field: Copy {
    /// Its declaration in CUDA C++ under this name, without the semicolon.
    fn declaration(name: &str) -> String;
}

/// What a pointer of the device points to.
pub(in crate::cuda) trait Pointee: Copy {
    /// Of this type are the elements of the host's views; several may make one of the device's.
    type Element;
    /// The device's name of it.
    const NAME: &'static str;
}

/// A struct that host and device lay out the same; made by [`device_struct!`].
///
/// # Safety
/// [`DeviceStruct::declaration`] declares a struct of the same fields at the same offsets.
pub(in crate::cuda) unsafe trait DeviceStruct: Copy {
    /// Its declaration in CUDA C++, and assertions that the device lays it out as the host does.
    fn declaration() -> String;
}

macro_rules! numbers {
    ($($host:ty => $device:literal),*) => {$(
        // SAFETY: numbers of as many bits, aligned to their size on both sides.
        unsafe impl Field for $host {
            fn declaration(name: &str) -> String {
                format!("{} {name}", $device)
            }
        }

        impl Pointee for $host {
            type Element = $host;
            const NAME: &'static str = $device;
        }
    )*};
}
numbers!(i32 => "int", u32 => "u32", u64 => "u64", f32 => "float");

macro_rules! pointees {
    ($($host:ty, $element:ty => $device:literal),*) => {$(
        impl Pointee for $host {
            type Element = $element;
            const NAME: &'static str = $device;
        }
    )*};
}
pointees!(i8, i8 => "i8", u8, u8 => "u8", u16, u16 => "u16", f64, f64 => "double");
pointees!([f32; 2], f32 => "float2", [i32; 2], i32 => "int2", [i32; 4], i32 => "int4");

// SAFETY: elements lie one after another on both sides.
unsafe impl<T: Field, const N: usize> Field for [T; N] {
    fn declaration(name: &str) -> String {
        T::declaration(&format!("{name}[{N}]"))
    }
}

/// Memory of the device that a kernel reads; may be null.
#[derive(Debug)]
#[repr(transparent)]
pub(in crate::cuda) struct Ptr<T>(u64, PhantomData<*const T>);

/// Memory of the device that a kernel writes, and may read; may be null.
#[derive(Debug)]
#[repr(transparent)]
pub(in crate::cuda) struct PtrMut<T>(u64, PhantomData<*mut T>);

// SAFETY: an address of the device is a word of 64 bits on both sides.
unsafe impl<T: Pointee> Field for Ptr<T> {
    fn declaration(name: &str) -> String {
        format!("const {} *{name}", T::NAME)
    }
}

// SAFETY: as above.
unsafe impl<T: Pointee> Field for PtrMut<T> {
    fn declaration(name: &str) -> String {
        format!("{} *{name}", T::NAME)
    }
}

macro_rules! pointers {
    ($($pointer:ident),*) => {$(
        impl<T> Clone for $pointer<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $pointer<T> {}

        impl<T> Default for $pointer<T> {
            /// Makes the null pointer, which stands for a buffer that is absent.
            fn default() -> Self {
                Self(0, PhantomData)
            }
        }

        impl<T: Pointee> $pointer<T> {
            /// So many of the device's elements further on; null stays null.
            pub(in crate::cuda) fn skip(self, elements: usize) -> Self {
                if self.0 == 0 { self } else { Self(self.0 + (elements * size_of::<T>()) as u64, PhantomData) }
            }

            /// The address on the device.
            pub(in crate::cuda) fn address(self) -> u64 {
                self.0
            }
        }
    )*};
}
pointers!(Ptr, PtrMut);

impl<T: Pointee> Ptr<T> {
    /// Points to the first element of `memory`.
    pub(in crate::cuda) fn of(memory: &impl DevicePtr<T::Element>, stream: &CudaStream) -> Self {
        Self(memory.device_ptr(stream).0, PhantomData)
    }

    /// Points to the first element of `memory`, or is null where there is none.
    pub(in crate::cuda) fn of_some(memory: Option<&impl DevicePtr<T::Element>>, stream: &CudaStream) -> Self {
        memory.map_or(Self::default(), |m| Self::of(m, stream))
    }

    /// Points to an address of the device; the caller vouches for the memory there.
    pub(in crate::cuda) fn at(address: u64) -> Self {
        Self(address, PhantomData)
    }
}

impl<T: Pointee> PtrMut<T> {
    /// Points to the first element of `memory`, which the kernel may write.
    pub(in crate::cuda) fn of(memory: &mut impl DevicePtrMut<T::Element>, stream: &CudaStream) -> Self {
        Self(memory.device_ptr_mut(stream).0, PhantomData)
    }

    /// Where `memory` begins that launches share, which follow one another on the stream: the host never looks at it.
    pub(in crate::cuda) fn of_shared(memory: &impl DevicePtr<T::Element>, stream: &CudaStream) -> Self {
        Self(memory.device_ptr(stream).0, PhantomData)
    }

    /// Points to an address of the device; the caller vouches for the memory there.
    pub(in crate::cuda) fn at(address: u64) -> Self {
        Self(address, PhantomData)
    }

    /// Reinterprets the memory as elements of type `U`; the address stays as it is.
    pub(in crate::cuda) fn cast<U>(self) -> PtrMut<U> {
        PtrMut(self.0, PhantomData)
    }
}

/// Text of a program's [`FILE`]: declarations of its structs, those first that others name.
pub(in crate::cuda) fn file(structs: &[String]) -> String {
    format!("#pragma once\n#include \"common/base.cuh\"\n\n{}", structs.join("\n"))
}

/// Text of a struct: its fields in order, each with its offset.
pub(in crate::cuda) fn declaration(name: &str, size: usize, fields: &[(&str, String, usize)]) -> String {
    let mut text = format!("struct {name} {{\n");
    for (_, declared, _) in fields {
        let _ = writeln!(text, "    {declared};");
    }
    let _ = writeln!(text, "}};\nstatic_assert(sizeof({name}) == {size}, \"the host's {name} has {size} bytes\");");
    for (field, _, at) in fields {
        let _ = writeln!(text, "static_assert(OFFSET_OF({name}, {field}) == {at}, \"the host's {field} is at {at}\");");
    }
    text
}

/// Whether fields of these offsets and sizes follow one another without gaps, so that every byte up to the last field's
/// end is one's.
pub(in crate::cuda) const fn gapless(fields: &[(usize, usize)]) -> bool {
    let (mut i, mut end) = (0, 0);
    while i < fields.len() {
        if fields[i].0 != end {
            return false;
        }
        end += fields[i].1;
        i += 1;
    }
    true
}

/// Declares a struct for the device: as Rust, and as [`DeviceStruct`].
macro_rules! device_struct {
    ($(#[$about:meta])* $vis:vis struct $name:ident { $($(#[$what:meta])* $at:vis $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        $vis struct $name {
            $($(#[$what])* $at $field: $type,)*
        }

        const _: () = assert!(
            $crate::cuda::runtime::arguments::gapless(&[
                $((std::mem::offset_of!($name, $field), size_of::<$type>())),*
            ]),
            "larger fields come first"
        );

        // SAFETY: the text is made of the same fields, and the device's compiler asserts their offsets, which are those
        // of `repr(C)`.
        unsafe impl $crate::cuda::runtime::arguments::DeviceStruct for $name {
            fn declaration() -> String {
                let fields = [$((
                    stringify!($field),
                    <$type as $crate::cuda::runtime::arguments::Field>::declaration(stringify!($field)),
                    std::mem::offset_of!($name, $field),
                )),*];
                $crate::cuda::runtime::arguments::declaration(stringify!($name), size_of::<$name>(), &fields)
            }
        }
    };
}
pub(in crate::cuda) use device_struct;

#[cfg(test)]
mod tests {
    use super::*;

    device_struct! {
        /// A struct with one field of each kind.
        #[derive(Default)]
        struct Sample {
            from: Ptr<[f32; 2]>,
            to: PtrMut<i8>,
            lists: [i32; 3],
            count: u32,
        }
    }

    #[test]
    fn the_device_is_told_the_host_s_fields_and_where_they_lie() {
        let want = "struct Sample {\n    const float2 *from;\n    i8 *to;\n    int lists[3];\n    u32 count;\n};\n\
            static_assert(sizeof(Sample) == 32, \"the host's Sample has 32 bytes\");\n\
            static_assert(OFFSET_OF(Sample, from) == 0, \"the host's from is at 0\");\n\
            static_assert(OFFSET_OF(Sample, to) == 8, \"the host's to is at 8\");\n\
            static_assert(OFFSET_OF(Sample, lists) == 16, \"the host's lists is at 16\");\n\
            static_assert(OFFSET_OF(Sample, count) == 28, \"the host's count is at 28\");\n";
        assert_eq!(Sample::declaration(), want);
    }

    #[test]
    fn gaps_between_fields_are_found() {
        assert!(gapless(&[(0, 8), (8, 4), (12, 4)]) && gapless(&[]));
        assert!(!gapless(&[(0, 4), (8, 8)]) && !gapless(&[(4, 4)]));
    }

    #[test]
    fn pointers_move_by_the_device_s_elements_and_null_stays_null() {
        assert_eq!(Ptr::<[f32; 2]>::at(256).skip(3).address(), 256 + 24);
        assert_eq!(Ptr::<[i32; 4]>::default().skip(3).address(), 0);
        assert_eq!(PtrMut::<f32>(64, PhantomData).skip(2).cast::<u16>().skip(1).address(), 64 + 8 + 2);
    }
}
