// Package changes brings what a staged session did to its overlay into the person's folder, and takes it back.
//
// A staged session writes into the upper folder of an overlay; the host's folder is the layer below and does not change.
// The upper folder is hostile: it was written from inside. It is read through platform/workfs only, every count is bounded,
// and nothing but regular files, folders and symlinks ever leaves it. A change of a protected path (enforce/protect) goes to
// the held files, a secret file (enforce/hide) is never touched, and a path that the person edited since the session began
// is a conflict, which is asked. Each apply is written to a journal before it begins, so a kill -9 leaves every single file
// as it was or as it should be, and undo puts back the very inodes that were replaced.
//
// The session supervisor and the changes command import it; code behind the wall must not. It imports platform/workfs,
// platform/gitconfig, platform/filelock, platform/atomicfile, enforce/protect, enforce/hide and runtime/held. What must not be added:
// names of files to protect, mounts, and questions to the person (Options.Resolve asks).
package changes
