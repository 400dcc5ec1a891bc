package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server that a row started.
type process struct {
	cmd  *exec.Cmd
	addr string
	dir  string // its data, removed with it; may be empty
	log  *tail
}

// tail keeps the last lines that a process printed, for the error when it dies.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	if len(t.lines) > 20 {
		t.lines = t.lines[1:]
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// freeAddr finds a port that nobody listens on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start runs a program until its address takes connections.
func start(ctx context.Context, addr, path string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), addr: addr, log: &tail{}}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = in, in
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.log.add(s.Text())
		}
	}()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return p, conn.Close()
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("%s did not listen on %s: %w\n%s", path, addr, err, p.log), p.stop())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// startReference runs one of this program's own references.
func startReference(ctx context.Context, name string, args ...string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, addr, self, append([]string{"reference", name, addr}, args...)...)
}

// startWeir runs a node with data of its own and waits until it is ready.
func (b *bench) startWeir(ctx context.Context) (*process, error) {
	dir, err := b.data("weir")
	if err != nil {
		return nil, err
	}
	return b.startWeirOn(ctx, dir)
}

func (b *bench) startWeirOn(ctx context.Context, dir string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	p, err := start(ctx, addr, b.weirPath, "serve", "--data", dir, "--http", addr)
	if err != nil {
		return nil, err
	}
	p.dir = dir
	return p, p.ready(ctx, "/readyz")
}

func (p *process) ready(ctx context.Context, path string) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Get("http://" + p.addr + path)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("not ready: %w\n%s", err, p.log)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// stop ends the process, waits for it and removes its data.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s ended by itself: %w\n%s", p.cmd.Path, err, p.log)
	}
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		if err := p.cmd.Process.Kill(); err != nil {
			return err
		}
		<-done
	}
	if p.dir != "" {
		return os.RemoveAll(p.dir)
	}
	return nil
}

// cpu is the processor time that the process has used, in seconds.
func (p *process) cpu() (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in brackets and may hold spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks float64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return ticks / 100, nil // USER_HZ is 100 on every Linux that Go runs on
}

// memory is the resident set of the process in bytes.
func (p *process) memory() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024, err
		}
	}
	return 0, errors.New("no VmRSS line")
}

// stopAll stops every process and joins what went wrong.
func stopAll(ps ...*process) func() error {
	return func() error {
		var errs []error
		for _, p := range ps {
			if p != nil {
				errs = append(errs, p.stop())
			}
		}
		return errors.Join(errs...)
	}
}

// createTopic makes a topic on a weir node.
func createTopic(p *process, name string, partitions int, settings string) error {
	body := fmt.Sprintf(`{"name":%q,"partitions":%d,"settings":{%s}}`, name, partitions, settings)
	resp, err := http.Post("http://"+p.addr+"/v1/topics", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // only to explain the status
		return fmt.Errorf("create %s: %s: %s", name, resp.Status, text)
	}
	return nil
}
