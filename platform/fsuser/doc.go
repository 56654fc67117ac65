// Package fsuser runs a function with another user's rights on files, so that a server that runs as root cannot be led to
// write where the owner of a workspace may not.
//
// The ids belong to one thread (setfsuid(2), setfsgid(2) and the raw setgroups call); the kernel takes the capabilities
// over files away with them, and the thread ends with the function. Owners of a workspace outside the wall import it. It
// must not learn what is done to files.
package fsuser
