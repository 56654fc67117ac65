package cli

import (
	"errors"
	"fmt"

	"coworker/runtime/session"
)

// publish makes the ports of --publish reachable on 127.0.0.1 and returns what takes them away again.
func (x *execution) publish() (closePorts func() error, err error) {
	var open []*session.Published
	closePorts = func() error {
		var errs []error
		for _, p := range open {
			errs = append(errs, p.Close())
		}
		return errors.Join(errs...)
	}
	for _, p := range x.ports {
		published, err := x.session.Publish(x.stop.ctx, p.host, p.inside)
		if err != nil {
			busy := &usageError{text: fmt.Sprintf("--publish %d:%d: %v", p.host, p.inside, err), hint: "choose another HOST_PORT"}
			return nil, errors.Join(busy, closePorts())
		}
		open = append(open, published)
	}
	return closePorts, nil
}
