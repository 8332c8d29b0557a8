// policy.js -> the component that is named on the command line. All features of the engine that would import WASI are off: a policy gets none.
import { componentize } from '@bytecodealliance/componentize-js';
import { writeFile } from 'node:fs/promises';

const [source, wit, out] = process.argv.slice(2);
const { component, imports } = await componentize({
  sourcePath: source,
  witPath: wit,
  worldName: 'router-policy',
  disableFeatures: ['random', 'stdio', 'clocks', 'http', 'fetch-event'],
});
await writeFile(out, component);
const modules = [...new Set(imports.map(([module]) => module))];
console.log(`${out}: ${component.length} bytes, imports ${modules.join(", ") || "nothing"}`);
