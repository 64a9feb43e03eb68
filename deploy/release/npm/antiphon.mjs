#!/usr/bin/env node
// Starts the program of the platform's package, which npm installs beside this one, and ends as it ends.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const platform = `${process.platform}-${process.arch}`;
const packages = { "linux-x64": "@antiphon/linux-x64", "linux-arm64": "@antiphon/linux-arm64" };

function program() {
  const name = packages[platform];
  if (!name) {
    throw new Error(`there is no program for ${platform}; there is one for ${Object.keys(packages).join(", ")}`);
  }
  try {
    return createRequire(import.meta.url).resolve(`${name}/bin/antiphon`);
  } catch {
    throw new Error(
      `the package ${name} is not installed. npm leaves it out on systems without glibc (Alpine), and with --omit=optional`,
    );
  }
}

function fail(message) {
  console.error(`antiphon: ${message}`);
  process.exit(1);
}

try {
  const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
  child.on("error", (error) => fail(`the program cannot be started: ${error.message}`));
  // The terminal sends Ctrl-C to both; the program decides when it ends. Other signals reach this process only.
  process.on("SIGINT", () => {});
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
} catch (error) {
  fail(error.message);
}
