package cli

import (
	"errors"
	"os"
	"sync"

	"coworker/runtime/session"
)

// program is a helper's binary, read and checked while everything else is decided.
type program struct {
	work sync.WaitGroup
	file *os.File
	err  error
}

func loadProgram() *program { return load(session.OpenProgram) }

// load reads a helper of this build in the background.
func load(open func() (*os.File, error)) *program {
	p := &program{}
	p.work.Go(func() { p.file, p.err = open() })
	return p
}

// open waits for the check. The file stays owned by the program.
func (p *program) open() (*os.File, error) {
	p.work.Wait()
	if refused := (*session.RefusedError)(nil); errors.As(p.err, &refused) { // it knows a better hint
		return nil, p.err
	}
	if p.err != nil {
		return nil, &wallsError{err: p.err, hint: "build all binaries together with make build, and keep coworker-cell and coworker-proxy beside coworker"}
	}
	return p.file, nil
}

func (p *program) close() {
	p.work.Wait()
	if p.file != nil {
		p.file.Close() // read-only and in memory: nothing can be lost
	}
}
