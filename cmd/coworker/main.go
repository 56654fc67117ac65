// Command coworker runs programs and agents behind walls that are proved before anything starts, and keeps the
// record of it. Everything a person can type is in package cli; this file ends the process.
package main

import (
	"context"
	"os"

	"coworker/cmd/coworker/cli"
)

func main() {
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	err := cli.Run(context.Background(), os.Args, streams)
	os.Exit(cli.Report(streams.Err, err))
}
