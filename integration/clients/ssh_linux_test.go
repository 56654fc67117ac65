package clients

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"coworker/integration/house/testuser"
)

// login is what a client needs to get into the ssh server of the world.
type login struct {
	key   []byte // the client's private key
	hosts string // known_hosts lines of both hosts
}

// serveSSH answers ssh on every address: it runs git's server side, and greets whoever asks for something else. Commands
// run as the unprivileged user of the suite. OpenSSH's own server is not used: its package starts a service of the machine
// when it is installed, and it serves only users of the machine's database.
func (w *world) serveSSH(t *testing.T) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "test")
	if err != nil {
		t.Fatal(err)
	}
	client, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.NewSignerFromKey(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(client.Marshal()) {
			return nil, errors.New("not the key of this test")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(host.PublicKey())))
	w.login = login{key: pem.EncodeToMemory(block), hosts: allowed + " " + line + "\n" + existing + " " + line + "\n"}
	s := &shellServer{config: config, world: w, user: testuser.Unprivileged(t), bare: filepath.Join(w.dir, "git/repo.git")}
	acceptAll(t, w.listen(t, "22"), s.connection)
}

// acceptAll serves connections until the listener closes, and closes them at the end of the test.
func acceptAll(t *testing.T, l net.Listener, serve func(net.Conn)) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards open
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			all.Go(func() {
				serve(conn)
				conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
}

type shellServer struct {
	config *ssh.ServerConfig
	world  *world
	user   testuser.User
	bare   string
}

func (s *shellServer) connection(conn net.Conn) {
	server, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return
	}
	defer server.Close()
	var all sync.WaitGroup
	all.Go(func() { ssh.DiscardRequests(requests) })
	for offered := range channels {
		if offered.ChannelType() != "session" {
			offered.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, requests, err := offered.Accept()
		if err != nil {
			break
		}
		all.Go(func() { s.session(channel, requests) })
	}
	server.Close()
	all.Wait()
}

func (s *shellServer) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	var input sync.WaitGroup // copies what the client sends until the channel is closed
	defer func() {
		channel.Close()
		input.Wait()
	}()
	for r := range requests {
		if r.Type != "exec" { // env, pty-req: not needed
			r.Reply(r.Type == "env", nil)
			continue
		}
		var payload struct{ Command string }
		err := ssh.Unmarshal(r.Payload, &payload)
		r.Reply(err == nil, nil)
		status := struct{ Code uint32 }{s.command(channel, payload.Command, &input)}
		channel.SendRequest("exit-status", false, ssh.Marshal(&status))
		return
	}
}

// command runs what git asks for, and only on the repository of the world.
func (s *shellServer) command(channel ssh.Channel, line string, input *sync.WaitGroup) uint32 {
	if !strings.HasPrefix(line, "git-upload-pack ") {
		io.WriteString(channel, greeting+"\n")
		return 0
	}
	cmd := exec.Command("git", "upload-pack", s.bare)
	if os.Geteuid() == 0 {
		cmd = s.user.Command(context.Background(), s.world.dir, "git", "upload-pack", s.bare)
	}
	cmd.Env = gitEnvironment(s.world.dir)
	cmd.Dir = s.world.dir
	in, err := cmd.StdinPipe()
	if err != nil {
		return 1
	}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	if cmd.Start() != nil {
		return 1
	}
	input.Go(func() {
		io.Copy(in, channel)
		in.Close()
	})
	if cmd.Wait() != nil {
		return 1
	}
	return 0
}
