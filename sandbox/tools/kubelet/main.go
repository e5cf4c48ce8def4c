// Command kubelet is the HTTPS port of all the sandbox's kubelets: exec and logs, as the API server asks for them.
//
// It decides nothing and runs nothing itself. Each request goes to the process sandbox.machines over its socket, with
// the open streams, and the command runs there, inside the machine's own file tree. kwok has such a port too; it would run
// the command on this computer, and it loses the exit status.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idleTimeout     = 4 * time.Hour
	creationTimeout = 30 * time.Second
	// What a command wrote before it ended is on its way for this long at most, whoever else holds its output open.
	drain = 2 * time.Second
)

type request struct {
	Op        string   `json:"op"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Container string   `json:"container"`
	Argv      []string `json:"argv,omitempty"`
}

type reply struct {
	Exit    int    `json:"exit"`
	Refused string `json:"refused"`
}

type server struct{ folder string }

// ask sends one request with open files, and waits for the one line that answers it. It ends early with the context.
func (s *server) ask(ctx context.Context, what request, files ...*os.File) (reply, error) {
	folder, err := os.Open(s.folder)
	if err != nil {
		return reply{}, err
	}
	defer folder.Close()
	// A socket's path may have 107 characters at most; a folder's descriptor makes any path short.
	connection, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/machines.sock", folder.Fd()))
	if err != nil {
		return reply{}, err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	line, err := json.Marshal(what)
	if err != nil {
		return reply{}, err
	}
	descriptors := make([]int, len(files))
	for i, file := range files {
		descriptors[i] = int(file.Fd())
	}
	rights := syscall.UnixRights(descriptors...)
	if _, _, err = connection.(*net.UnixConn).WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return reply{}, err
	}
	answer, err := bufio.NewReader(connection).ReadBytes('\n')
	if err != nil {
		return reply{}, fmt.Errorf("the machine went away: %w", err)
	}
	var decoded reply
	if err = json.Unmarshal(answer, &decoded); err != nil {
		return reply{}, err
	}
	if decoded.Refused != "" {
		return reply{}, errors.New(decoded.Refused)
	}
	return decoded, nil
}

// ExecInContainer runs a command in a container; name is "namespace/pod".
func (s *server) ExecInContainer(ctx context.Context, name, _, container string, argv []string, in io.Reader,
	out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	namespace, pod, _ := strings.Cut(name, "/")
	what := request{Op: "pod", Namespace: namespace, Name: pod, Container: container, Argv: argv}
	var answer reply
	var err error
	if tty {
		answer, err = s.onTerminal(ctx, what, in, out, resize)
	} else {
		answer, err = s.onPipes(ctx, what, in, out, errOut)
	}
	if err != nil {
		return err
	}
	if answer.Exit != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", answer.Exit), Code: answer.Exit}
	}
	return nil
}

func (s *server) onPipes(ctx context.Context, what request, in io.Reader, out, errOut io.Writer) (reply, error) {
	stdin, feed, err := os.Pipe()
	if err != nil {
		return reply{}, err
	}
	defer stdin.Close()
	go func() {
		defer feed.Close()
		if in != nil {
			_, _ = io.Copy(feed, in)
		}
	}()
	var copying sync.WaitGroup
	outward := func(target io.Writer) (*os.File, *os.File, error) {
		reader, writer, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		if target == nil {
			target = io.Discard
		}
		copying.Go(func() { _, _ = io.Copy(target, reader) })
		return reader, writer, nil
	}
	outReader, stdout, err := outward(out)
	if err != nil {
		return reply{}, err
	}
	defer outReader.Close()
	errReader, stderr, err := outward(errOut)
	if err != nil {
		stdout.Close()
		return reply{}, err
	}
	defer errReader.Close()
	answer, err := s.ask(ctx, what, stdin, stdout, stderr)
	stdout.Close()
	stderr.Close()
	wait(&copying)
	return answer, err
}

func (s *server) onTerminal(ctx context.Context, what request, in io.Reader, out io.Writer,
	resize <-chan remotecommand.TerminalSize) (reply, error) {
	master, terminal, err := pty.Open()
	if err != nil {
		return reply{}, err
	}
	defer master.Close()
	go func() {
		for size := range resize {
			_ = pty.Setsize(master, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(master, in) }()
	}
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(out, master) })
	answer, err := s.ask(ctx, what, terminal, terminal, terminal)
	terminal.Close()
	wait(&copying)
	return answer, err
}

func wait(copying *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { copying.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drain):
	}
}

func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	what := request{Op: "probe", Namespace: r.PathValue("namespace"), Name: r.PathValue("pod"), Container: r.PathValue("container")}
	if _, err = s.ask(r.Context(), what); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	remotecommand.ServeExec(w, r, s, what.Namespace+"/"+what.Name, "", what.Container, r.URL.Query()["command"], options,
		idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *server) logs(w http.ResponseWriter, r *http.Request) {
	reader, writer, err := os.Pipe()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer reader.Close()
	what := request{Op: "logs", Namespace: r.PathValue("namespace"), Name: r.PathValue("pod"), Container: r.PathValue("container")}
	for name, values := range r.URL.Query() {
		what.Argv = append(what.Argv, name+"="+values[0])
	}
	_, err = s.ask(r.Context(), what, writer)
	writer.Close()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.Copy(w, reader)
}

func main() {
	address := flag.String("address", "127.0.0.1:10250", "where to listen")
	state := flag.String("state", "", "the sandbox's folder")
	certificate := flag.String("tls-cert-file", "", "")
	key := flag.String("tls-private-key-file", "", "")
	authority := flag.String("client-ca-file", "", "who signs the API server's client certificate")
	flag.Parse()

	pem, err := os.ReadFile(*authority)
	if err != nil {
		log.Fatal(err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(pem) {
		log.Fatalf("%s holds no certificate", *authority)
	}
	kubelet := &server{folder: filepath.Join(*state, "run", "machines")}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", kubelet.exec)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", kubelet.logs)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	listener := &http.Server{
		Addr:    *address,
		Handler: mux,
		// HTTP/2 can't be upgraded to the streams of exec.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig:    &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12},
	}
	log.Fatal(listener.ListenAndServeTLS(*certificate, *key))
}
