package wallspec

import (
	"io/fs"

	"coworker/platform/paths"
)

// Info is what is known about one file.
type Info struct {
	Mode   fs.FileMode
	Device uint64
	Inode  uint64
	UID    int
	GID    int
}

// Files is how the package looks at the file system.
type Files struct {
	Lstat    func(path string) (Info, error) // follows no symbolic link in the last part
	Readlink func(path string) (string, error)
	// ReadFile gives the content of a regular file and what it is. It follows no symbolic link in the last
	// part, does not block on a FIFO, and refuses a file with more than limit bytes.
	ReadFile func(path string, limit int64) ([]byte, Info, error)
}

// User is an entry of the user database.
type User struct {
	UID   int
	GID   int
	Name  string
	Group string // name of the primary group
	Home  string
	Shell string
}

// Host is everything about the machine and the caller that a Spec depends on.
type Host struct {
	Files   Files
	Environ []string // NAME=VALUE, as os.Environ gives it
	Cwd     string
	Dirs    paths.Dirs // coworker's own folders
	// ConfigFile is where the person's settings are, for hints.
	ConfigFile string

	UID int // effective ids of the caller
	GID int
	// LookupUser finds a user by name, LookupUID by number; ok is false if there is none.
	LookupUser func(name string) (u User, ok bool)
	LookupUID  func(uid int) (u User, ok bool)

	Memory    int64 // bytes of RAM this process may use
	OpenFiles int64 // hard limit of open files for one process
	Cores     int   // processors this process may use; 0: unknown

	// Protected reports whether a path relative to a tree is protected by default (enforce/protect).
	Protected func(rel string, dir bool) bool
	// Secret reports whether a file name marks a secret (enforce/hide). Without it every file that is named
	// counts as one.
	Secret func(rel string) bool
	// InertGit filters a global git configuration (platform/gitconfig.InertGlobal).
	InertGit func([]byte) ([]byte, error)
}
