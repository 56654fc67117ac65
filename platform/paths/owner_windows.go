package paths

import "io/fs"

// checkOwner accepts: mode bits and numeric owners do not exist here, and the
// profile folders under which these live carry an ACL for their user alone.
func checkOwner(string, fs.FileInfo) error { return nil }
