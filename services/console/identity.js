// Names that no other browser has made. `crypto.randomUUID` is missing on plain HTTP, where most of a LAN is; random bytes are not.

/** 128 random bits in hexadecimal. */
export const identity = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
