// Package ci is fini in front of a step of CI: what GitHub's and GitLab's runners do to it, make, npm, xargs,
// scripts and PostgreSQL.
package ci
