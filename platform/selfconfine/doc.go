// Package selfconfine takes rights away from the calling process that it will not need again: a process that reads hostile
// bytes begins with it.
//
// Commands may import it. It is about this process only; walls around other programs are enforce's.
package selfconfine
