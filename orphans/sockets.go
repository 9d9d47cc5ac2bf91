package orphans

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file finds the addresses on which a process listens, to help a user find the process. It reads nothing
// before there is a process to name, and follows no link: the texts of the links in /proc/PID/fd name the
// sockets, as "socket:[4711]", and the tables in /proc/net say which of these sockets listen. See
// proc_pid_net(5).

const (
	maxListens   = 16      // addresses named for each process, at most
	maxSockets   = 4096    // descriptors read of each process
	maxListeners = 10_000  // listening sockets kept from the tables
	maxTable     = 1 << 20 // bytes read of each table; the kernel lists listening TCP sockets first
	maxDir       = 1 << 10
	maxAddress   = 108 // as in unix(7)
)

// ownDir is the working directory of this process, "" if the directory has no name here. ownDir asks no
// file system.
func ownDir() string {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buf)
	if err != nil || n < 2 || buf[0] != '/' {
		return ""
	}
	return string(buf[:n-1])
}

// listens are the addresses on which a process listens, nil if fini may not read the descriptors of the process. They
// are also nil if the process is in another network namespace, which has other tables. (The first process that has a
// socket makes listens read the tables.)
func (f *files) listens(dir string, listening *map[uint64]string) []string {
	own := f.link("self/ns/net")
	if own == "" || own != f.link(dir+"/ns/net") {
		return nil
	}
	var sockets []uint64
	looked := 0
	err := f.list(dir+"/fd", func(fd int) bool {
		if inode, ok := socketInode(f.link(dir + "/fd/" + strconv.Itoa(fd))); ok {
			sockets = append(sockets, inode)
		}
		looked++
		return looked < maxSockets
	})
	if err != nil {
		return nil
	}
	found := []string{}
	if len(sockets) == 0 {
		return found
	}
	if *listening == nil {
		*listening = f.listeners()
	}
	for _, inode := range sockets {
		if address, ok := (*listening)[inode]; ok && len(found) < maxListens && !slices.Contains(found, address) {
			found = append(found, address)
		}
	}
	return found
}

// socketInode is the inode in the text of a descriptor's link. ok is false if the link names no socket.
func socketInode(link string) (inode uint64, ok bool) {
	number, isSocket := strings.CutPrefix(link, "socket:[")
	number, isWhole := strings.CutSuffix(number, "]")
	inode, err := strconv.ParseUint(number, 10, 64)
	return inode, isSocket && isWhole && err == nil
}

// listeners are the addresses of the listening sockets in this network namespace, by inode.
func (f *files) listeners() map[uint64]string {
	found := map[uint64]string{}
	for _, table := range []struct {
		name  string
		parse func(line []byte) (inode uint64, address string, ok bool)
	}{{"tcp", parseTCP}, {"tcp6", parseTCP}, {"unix", parseUnix}} {
		_ = f.each("self/net/"+table.name, '\n', maxTable, func(line []byte, whole bool) {
			if inode, address, ok := table.parse(line); whole && ok && inode != 0 && len(found) < maxListeners {
				found[inode] = address
			}
		})
	}
	return found
}

// parseTCP reads a line of /proc/net/tcp or tcp6. ok is true if the socket listens.
func parseTCP(line []byte) (inode uint64, address string, ok bool) {
	const listen = "0A" // TCP_LISTEN in the kernel's net/tcp_states.h
	fields := bytes.Fields(line)
	if len(fields) < 10 || string(fields[3]) != listen {
		return 0, "", false
	}
	inode, err := strconv.ParseUint(string(fields[9]), 10, 64)
	address, err2 := parseAddress(string(fields[1]))
	return inode, address, err == nil && err2 == nil
}

// parseAddress reads an address in hexadecimal: words of 32 bits in the byte order of the machine, and the port.
func parseAddress(text string) (address string, err error) {
	words, number, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(number, 16, 16)
	if err != nil {
		return "", err
	}
	ip, err := hex.DecodeString(words)
	if err != nil {
		return "", err
	}
	if len(ip) != 4 && len(ip) != 16 {
		return "", errors.New("it is no address")
	}
	for i := 0; i < len(ip); i += 4 {
		binary.NativeEndian.PutUint32(ip[i:], binary.BigEndian.Uint32(ip[i:]))
	}
	host := fmt.Sprintf("%d.%d.%d.%d", ip[len(ip)-4], ip[len(ip)-3], ip[len(ip)-2], ip[len(ip)-1])
	if len(ip) == 16 {
		host = "[" + ipv6(ip, host) + "]"
	}
	return host + ":" + strconv.FormatUint(port, 10), nil
}

// ipv6 is an address in the notation of RFC 5952; last is its last four bytes in the notation of IPv4. fini
// does not use package net, which takes time at each start.
func ipv6(ip []byte, last string) string {
	if bytes.Equal(ip[:12], []byte{10: 0xff, 11: 0xff}) {
		return "::ffff:" + last
	}
	text := ""
	for i := 0; i < 16; i += 2 {
		text += ":" + strconv.FormatUint(uint64(binary.BigEndian.Uint16(ip[i:])), 16)
	}
	for n := 8; n > 1; n-- { // a single 0 is not left out
		if before, after, ok := strings.Cut(text+":", strings.Repeat(":0", n)+":"); ok {
			return strings.TrimPrefix(before, ":") + "::" + strings.TrimSuffix(after, ":")
		}
	}
	return text[1:]
}

// parseUnix reads a line of /proc/net/unix. ok is true if the socket listens and has a name. A process
// may choose any name.
func parseUnix(line []byte) (inode uint64, path string, ok bool) {
	const accepts = 0x10000 // __SO_ACCEPTCON in the kernel's linux/net.h
	fields := bytes.Fields(line)
	if len(fields) < 8 {
		return 0, "", false
	}
	flags, err := strconv.ParseUint(string(fields[3]), 16, 32)
	inode, err2 := strconv.ParseUint(string(fields[6]), 10, 64)
	if err != nil || err2 != nil || flags&accepts == 0 {
		return 0, "", false
	}
	// The name is the rest of the line, and may hold spaces.
	_, name, _ := bytes.Cut(line, append([]byte{' '}, append(fields[6], ' ')...))
	return inode, string(name[:min(len(name), maxAddress)]), len(name) > 0
}
