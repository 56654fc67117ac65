package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// port is one --publish: host is a port on 127.0.0.1, inside one of the command's.
type port struct{ host, inside uint16 }

func parsePorts(list []string) ([]port, error) {
	var out []port
	for _, text := range list {
		host, inside, two := strings.Cut(text, ":")
		if !two {
			inside = host
		}
		h, err := strconv.ParseUint(host, 10, 16)
		i, insideErr := strconv.ParseUint(inside, 10, 16)
		if err != nil || insideErr != nil || h == 0 || i == 0 {
			return nil, &usageError{text: fmt.Sprintf("--publish %q: want [HOST_PORT:]PORT, each from 1 to 65535", text), hint: "coworker exec --publish 8080:3000 -- npm start"}
		}
		out = append(out, port{uint16(h), uint16(i)})
	}
	return out, nil
}
